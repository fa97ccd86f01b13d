"""Type checkers, editors and ``help()`` see every setting of ``dorylus.train``, with its type and its default."""

import dataclasses
import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import dorylus
from dorylus.config import RECUT, AllSettings, ResumeSettings, RunConfig, RunSettings

SOURCE = Path(dorylus.__file__).parent
FIELDS = {each.name: each for each in dataclasses.fields(RunConfig)}
OBJECTS_TOO = {"optimizer", "lr_schedule", "pool"}


def kinds(type_):
    return set(get_args(type_)) if "|" in str(type_) else {type_}


def test_the_typed_keywords_are_the_fields():
    assert set(get_type_hints(AllSettings)) == set(FIELDS)
    assert set(get_type_hints(RunSettings)) == set(FIELDS) - OBJECTS_TOO
    assert set(get_type_hints(ResumeSettings)) == set(RECUT)


@pytest.mark.parametrize("name", FIELDS)
def test_a_keyword_has_the_type_of_its_field_or_a_wider_one(name):
    assert kinds(FIELDS[name].type) <= kinds(get_type_hints(AllSettings)[name])


@pytest.mark.parametrize(
    "function", [dorylus.train, dorylus.Trainer, dorylus.plan_memory], ids=lambda each: each.__name__
)
def test_help_lists_every_setting_with_its_default(function):
    listed = inspect.signature(function).parameters
    default = RunConfig()
    assert {name: listed[name].default for name in FIELDS} == {name: getattr(default, name) for name in FIELDS}


@pytest.mark.parametrize("function", [dorylus.resume, dorylus.Trainer.resume], ids=["resume", "Trainer.resume"])
def test_help_lists_the_settings_that_may_change_on_resume(function):
    listed = inspect.signature(function).parameters
    assert {name for name, each in listed.items() if each.default is ...} == set(RECUT)


@pytest.mark.parametrize("name", FIELDS)
def test_help_has_a_line_with_type_and_default_and_one_that_explains_it(name):
    lines = pydoc.render_doc(dorylus.train, renderer=pydoc.plaintext).splitlines()
    (number,) = [k for k, line in enumerate(lines) if re.match(rf" +{name}: .+ = .+$", line)]
    assert lines[number + 1].strip() == FIELDS[name].metadata["help"]


SNIPPET = """
import dorylus
dorylus.train(graph, model, epochs=3, lr=1, memory="1GiB", weight_decay={"*.bias": 0.0}, optimizer="sgd")
dorylus.Trainer(graph, model, run_dir=None, pool="processes")
dorylus.resume("run", servers=2, pool="ray")
dorylus.train(graph, model, epochs="3")
dorylus.train(graph, model, epoch=3)
dorylus.Trainer(graph, model, threads=1.5)
dorylus.resume("run", epochs=3)
dorylus.plan_memory(graph, model, pool=3)
dorylus.train(graph, model, lr="x")
dorylus.Trainer(graph, model, lr="x")
dorylus.Trainer(graph, model, epoch=3)
dorylus.train(graph, model, progress="yes")
"""


def test_a_type_checker_accepts_settings_and_refuses_others(tmp_path):
    (tmp_path / "snippet.py").write_text(SNIPPET.replace("graph", "...").replace("model", "..."))
    modules = ("__init__", "config", "training/__init__", "training/trainer", "training/assembly")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file=",
        "--follow-imports=skip",
    ]  # no torch: seconds, not a minute
    try:
        done = subprocess.run(
            [*command, f"--cache-dir={tmp_path}", "snippet.py", *(SOURCE / f"{module}.py" for module in modules)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=60,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("mypy is slow here")
    lines = [
        line.split(":")[1] for line in done.stdout.splitlines() if line.startswith("snippet.py") and "error" in line
    ]
    assert lines == [str(number) for number in range(6, 15)], done.stdout + done.stderr
