"""The list "One epoch, file by file" in the documentation names what an epoch calls, in the order of first calls."""

import ast
import re
import sys
import threading
from pathlib import Path

import pytest

import dorylus

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dorylus"
MOST_FILES = 20
STEP = re.compile(r"^\d+\. `(?P<path>\S+\.py): (?P<first>[\w.]+)`(?P<others>(?:, `[\w.]+`)*) - ", re.MULTILINE)


def section():
    """The text of the section."""
    text = (ROOT / "docs" / "how-it-works.md").read_text()
    return text.split("## One epoch, file by file\n")[1].split("\n## ")[0]


def steps():
    """Every step as its path and the names of its functions."""
    return [
        (step["path"], [step["first"], *re.findall(r"[\w.]+", step["others"])]) for step in STEP.finditer(section())
    ]


def defined_in(path):
    """The functions of a module, and the methods of its classes as ``Class.method``."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return names


def test_every_line_of_the_list_is_a_step():
    lines = re.findall(r"^\d+\. ", section(), re.MULTILINE)
    assert len(steps()) == len(lines) > 0


@pytest.mark.parametrize(("path", "names"), steps(), ids=str)
def test_a_step_names_functions_that_exist(path, names):
    missing = set(names) - defined_in(SOURCE / path)
    assert not missing, f"{path} has no {sorted(missing)}: update docs/how-it-works.md."


def test_the_list_begins_with_train_and_names_at_most_twenty_files():
    assert steps()[0][1][0] == "train"
    assert len({path for path, _ in steps()}) <= MOST_FILES


def first_calls(run):
    """The functions of the package that ``run`` calls, as (path, name), in the order of their first calls."""
    codes = {}

    def profile(frame, event, argument):
        if event == "call":
            codes.setdefault(frame.f_code)

    before = sys.getprofile(), threading.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])
    found = [(code.co_filename.rpartition("/dorylus/")[2], code.co_qualname) for code in codes]
    return list(dict.fromkeys(found))


def test_an_epoch_calls_every_function_of_the_list_in_its_order():
    graph = dorylus.communities(num_vertices=60, num_classes=3, average_degree=4, seed=0)
    model = dorylus.gcn(hidden=4)
    settings = {"epochs": 1, "seed": 0, "servers": 2, "intervals": 2, "threads": 1}
    listed = [(path, name) for path, names in steps() for name in names]
    dorylus.train(graph, model, **settings)  # imports everything: under the profiler that takes seconds
    called = first_calls(lambda: dorylus.train(graph, model, **settings))
    assert [each for each in called if each in listed] == listed
