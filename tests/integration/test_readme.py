"""The README's programs, lines of code and commands run; programs of the docs print what is documented."""

import ast
import gzip
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from torch import Tensor, nn

import dorylus
from dorylus import functions
from dorylus.cli import main
from dorylus.functions.deploy.local import LocalFunctions
from dorylus.graph.datasets import planetoid
from planted_tables import write_planted_tables
from small_planetoid import write_small_set
from small_runs import ctrl_c

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
ONE_LINERS = re.findall(r"^\| .*? \| `(.*?)` \| \[", TEXT, re.MULTILINE)
COMMANDS = re.findall(r"^dorylus .*", TEXT, re.MULTILINE)
MOST_LINES = 160
INTERRUPTED = 130  # the exit code after Ctrl-C
EPOCHS = 3  # where a line names no number
NOT_RUN = {  # and why; their settings are checked
    'dorylus.train(graph, model, cluster="ray", servers=4, run_dir="/shared/run")': (
        "it needs a Ray cluster: test_ray_nodes.py trains on one"
    ),
}
SLOW = {  # run with `make soak`: a stand-in for AWS takes seconds to start, and test_lambda_local.py trains on it
    'dorylus.train(graph, model, pool="lambda")',
}


def test_the_readme_is_short():
    assert len(TEXT.splitlines()) <= MOST_LINES


def test_the_program_prints_what_the_readme_shows(tmp_path):
    programs = re.findall(r"```python\n(.*?)```\s*```\n(.*?)```", TEXT, re.DOTALL)
    assert len(programs) == TEXT.count("```python")
    for program, expected in programs:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=240
        )
        assert done.stdout == expected, done.stderr


def test_the_program_is_the_first_example():
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert (ROOT / "examples" / "first_run.py").read_text().endswith(program)


@pytest.mark.parametrize("page", ["pipeline.md", "partitioning.md"])
def test_the_programs_of_a_page_print_as_many_lines_as_documented(page, tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs" / page).read_text()
    programs = re.findall(r"```python\n(import dorylus\n.*?)```\s*```\n(.*?)```", text, re.DOTALL)
    assert programs
    monkeypatch.chdir(tmp_path)
    for program, expected in programs:
        exec(compile(program, page, "exec"), {})
        assert len(capsys.readouterr().out.splitlines()) == len(expected.splitlines())


@pytest.mark.parametrize(("page", "example"), [("functions.md", "functions.py"), ("layers.md", "own_layer.py")])
def test_a_program_of_a_page_is_an_example(page, example):
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert (ROOT / "examples" / example).read_text().endswith(programs[0])


class MyLayer(dorylus.Layer):
    """A layer of one's own."""

    def __init__(self, in_columns: int, out_columns: int) -> None:
        super().__init__(in_columns, out_columns)
        self.lin = nn.Linear(in_columns, out_columns)

    def apply_vertex(self, own: Tensor, gathered: Tensor) -> Tensor:
        return self.lin(gathered)


class ShortRuns:
    """The package, except that ``train`` stops after a few epochs where a line does not say when."""

    def __getattr__(self, name):
        return getattr(dorylus, name)

    def train(self, *arguments, **settings):
        return dorylus.train(*arguments, **{"epochs": EPOCHS} | settings)


@pytest.fixture
def small_cora(tmp_path, monkeypatch):
    """A very small graph in the place where Cora would have been downloaded to."""
    write_small_set(tmp_path / "downloads" / "planetoid", "cora")
    monkeypatch.setattr(planetoid, "cache_folder", lambda root: tmp_path / "downloads" if root is None else Path(root))
    monkeypatch.setattr(planetoid, "NUM_VAL", 2)


@pytest.fixture(scope="module")
def graph():
    """The 32 columns and 8 classes that the README's example of a layer has."""
    return dorylus.communities(num_vertices=200, num_classes=8, num_features=32, average_degree=6, seed=0)


@pytest.fixture(scope="module")
def on_lambda():
    """A stand-in for AWS on this machine, with the function deployed."""
    with LocalFunctions() as deployed:
        yield deployed


@pytest.fixture
def yours(graph, small_cora, tmp_path, monkeypatch, request):
    """What the README's lines take as given, in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    model = dorylus.gcn(hidden=8)
    return {"dorylus": ShortRuns(), "graph": graph, "model": model, "MyLayer": MyLayer} | {
        name: prepared(request)
        for name, prepared in PREPARED.items()
        if re.search(rf"(?<!\w){name}(?!\w)", request.node.callspec.params["line"])
    }


def a_pyg_graph(request):
    from torch_geometric.data import Data

    graph = request.getfixturevalue("graph")
    masks = {name: torch.from_numpy(getattr(graph, name)) for name in ("train_mask", "val_mask", "test_mask")}
    edges = torch.from_numpy(np.stack(graph.edge_list()).astype(np.int64))
    return Data(x=torch.from_numpy(graph.features), edge_index=edges, y=torch.from_numpy(graph.labels), **masks)


def a_result(request):
    return dorylus.train(request.getfixturevalue("graph"), dorylus.gcn(hidden=8), epochs=EPOCHS)


def an_interrupted_run(request):
    graph = request.getfixturevalue("graph")
    with dorylus.Trainer(graph, dorylus.gcn(hidden=8), epochs=EPOCHS, run_dir="runs/mine") as trainer:
        trainer.run(1)


def an_edge_list(request):
    with gzip.open("edges.tsv.gz", "wt") as file:
        file.writelines(f"{vertex}\t{(vertex + 1) % 50}\n" for vertex in range(50))


def own_tables(request):
    write_planted_tables(Path.cwd(), num_vertices=60, num_edges=300)


def another_graph(request):
    return dorylus.communities(num_vertices=100, num_classes=8, num_features=32, average_degree=4, seed=1)


def a_function_on_lambda(request):
    on_lambda = request.getfixturevalue("on_lambda")
    request.getfixturevalue("monkeypatch").setattr(functions, "aws_access", lambda: on_lambda.access)


PREPARED = {
    "data": a_pyg_graph, "result": a_result, "runs/mine": an_interrupted_run, "edges.tsv.gz": an_edge_list,
    "edges.csv": own_tables, "other": another_graph, "pandas": lambda request: pandas,
    'pool="lambda"': a_function_on_lambda,
}  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=[pytest.mark.soak] if line in SLOW else [])
        for line in ONE_LINERS
        if line not in NOT_RUN
    ],
)
def test_a_line_of_code_runs(line, yours):
    exec(line, yours)


@pytest.mark.parametrize("line", [*NOT_RUN, *sorted(SLOW)])
def test_a_line_that_is_not_always_run_is_in_the_readme_with_settings_that_exist(line):
    assert line in ONE_LINERS
    (call,) = (node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call))
    assert ast.unparse(call.func) == "dorylus.train"
    dorylus.RunConfig.of(**{each.arg: ast.literal_eval(each.value) for each in call.keywords})


def exit_code(command):
    """The exit code of a command line."""
    with pytest.raises(SystemExit) as end:
        main(shlex.split(command)[1:])
    return end.value.code


@pytest.mark.usefixtures("small_cora")
def test_the_commands_run_one_after_another(tmp_path, monkeypatch, capsys):
    train, *others = COMMANDS
    assert train.startswith("dorylus train cora ")
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        ctrl_c(patch, at=EPOCHS)  # which leaves something to resume
        assert exit_code(train) == INTERRUPTED
    assert {command: exit_code(command) for command in others} == dict.fromkeys(others, 0), capsys.readouterr().err
    assert Path("classes.csv").read_text().startswith('"id","class","probability"\n')
    assert len(Path("classes.csv").read_text().splitlines()) == 1 + 7


def test_there_are_lines_and_commands_to_run():
    assert len(ONE_LINERS) >= 12
    assert len(COMMANDS) >= 3
