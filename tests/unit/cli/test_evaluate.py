"""The commands that use a trained model: evaluate, and predict and resume with another graph or its new place."""

import json
from dataclasses import replace

import numpy as np
import pytest

import dorylus
from dorylus.cli.predict import tables
from dorylus.graph import Graph
from dorylus.runs import RunFolder, TrainedOn
from dorylus.training import Evaluation

NAMES = ("art", "[bio]", "chem")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a run of two epochs, one of them trained, on the store "own", and another store, "other"."""
    folder = tmp_path_factory.mktemp("runs")
    for name, size in (("own", 120), ("other", 200)):
        made = dorylus.communities(size, num_classes=3, num_features=6, average_degree=5)
        replace(made, class_names=NAMES, name=name, trust="everything").save(folder / name)
    with dorylus.Trainer(
        Graph.open(folder / "own"), dorylus.gcn(hidden=4), epochs=2, threads=1, run_dir=folder / "run"
    ) as trainer:
        trainer.run(1)
    dorylus.resume(folder / "run")
    return folder


def test_splits_classes_and_confusions_are_shown_by_name(dorylus_program, folder):
    code, out, _ = dorylus_program("evaluate", folder / "run")
    scores = dorylus.evaluate_from(folder / "run")
    assert code == 0
    for name, split in scores.splits.items():
        assert f"│ {name:5} │ {split.num_vertices:8,} │   {split.accuracy:.4f} │   {split.macro_f1:.4f} │" in out
    recall = scores.splits["test"].classes.recall[1]
    assert f"│ [bio] │ {scores.splits['test'].classes.support[1]:8} │" in out
    assert f" {recall:.4f} │" in out
    row = " │ ".join(
        f"{count:{width}}" for count, width in zip(scores.splits["test"].confusion[1], (3, 5, 4), strict=True)
    )
    assert f"│ [bio]      │ {row} │" in out


def test_an_evaluation_is_printed_as_tables_of_splits_and_classes(folder):
    found = dorylus.evaluate_from(folder / "run")
    scores, classes = found.splits["test"], found.splits["test"].classes
    lines = str(found).splitlines()
    assert lines[0].split() == ["split", "vertices", "accuracy", "macro", "F1", "micro", "F1"]
    texts = f"{scores.accuracy:.4f} {scores.macro_f1:.4f} {scores.micro_f1:.4f}".split()
    assert ["test", str(scores.num_vertices), *texts] in [line.split() for line in lines]
    assert "test, by class" in lines
    bio = [f"{each[1]:.4f}" for each in (classes.precision, classes.recall, classes.f1)]
    assert lines[-2].split() == ["[bio]", str(classes.support[1]), *bio]
    assert len({len(line) for line in lines[-4:]}) == 1
    assert "array" not in repr(scores)


def test_json_has_every_split_of_another_graph(dorylus_program, folder):
    code, out, _ = dorylus_program("evaluate", folder / "run", "--graph", folder / "other", "--json")
    expected = dorylus.evaluate_from(folder / "run", graph=Graph.open(folder / "other"))
    assert code == 0
    assert json.loads(out) == expected.to_dict()
    assert json.loads(out)["splits"]["all"]["vertices"] == 200


def test_of_many_classes_the_pairs_that_are_confused_most_are_shown(dorylus_program, folder):
    names = tuple(f"class {number}" for number in range(20))
    truth = np.repeat(np.arange(20), 2)
    logits = np.eye(20, dtype=np.float32)[np.where(truth == 7, 3, truth)]
    graph = Graph.from_edges([0], [1], 40, labels=truth, features=np.ones((40, 1)), class_names=names)
    found = Evaluation.of(graph, truth, TrainedOn.of(graph), [logits])
    *_, often = tables(found, "all")
    assert [str(cell) for column in often.columns for cell in column.cells] == ["class 7", "class 3", "2"]
    many = Evaluation.of(
        graph,
        np.arange(40),
        replace(TrainedOn.of(graph), num_classes=40, class_names=()),
        [np.eye(40, dtype=np.float32)],
    )
    assert str(many).endswith("... and 20 more")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "tset"], "Did you mean 'test'"),
        (["--graph", "none"], "none"),
        (["--graph", "ring"], "has 16 features, but the model was trained on 6"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(dorylus_program, folder, arguments, message):
    code, out, err = dorylus_program("evaluate", folder / "run", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_another_graph_is_predicted(dorylus_program, folder, tmp_path):
    arguments = "--graph", folder / "other", "--what", "probabilities", "--out", "x.npy"
    assert dorylus_program("predict", folder / "run", *arguments)[:2] == (
        0,
        "probabilities of 200 vertices in x.npy\n",
    )
    expected = dorylus.predict_from(folder / "run", "probabilities", graph=Graph.open(folder / "other"))
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), expected)


def test_a_run_is_resumed_where_its_graph_is_now(dorylus_program, folder, tmp_path):
    Graph.open(folder / "own").save(tmp_path / "old")
    with dorylus.Trainer(
        Graph.open(tmp_path / "old").row_normalised(), dorylus.gcn(hidden=4), epochs=2, threads=1, run_dir="run"
    ) as trainer:
        trainer.run(1)
    (tmp_path / "old").rename(tmp_path / "new")
    code, _, err = dorylus_program("resume", "run")
    assert code == 2
    assert "is not there. Put it back, give --graph (dorylus resume keeps its new place)" in err
    code, _, err = dorylus_program("resume", "run", "--graph", folder / "other")
    assert code == 2
    assert "was started on another graph" in err
    assert dorylus_program("resume", "run", "--quiet", "--graph", "new")[0] == 0
    assert RunFolder.open("run").spec.graph == {"source": str(tmp_path / "new"), "row_normalise": True}
    assert dorylus_program("predict", "run")[0] == 0
