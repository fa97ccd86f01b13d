"""Scores of a run on its own graph and on another one: by split, by class, and which classes are confused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dorylus
from dorylus.errors import DivergedError, GraphError
from dorylus.graph import Graph

CLASSES = ("art", "bio", "chem")


def graph_of(num_vertices: int, seed: int = 0, **options: Any) -> Graph:
    made = dorylus.communities(num_vertices=num_vertices, num_classes=3, num_features=6, seed=seed, **options)
    return replace(made, class_names=CLASSES, trust="everything")


@pytest.fixture(scope="module", params=[False, True], ids=["one label", "several labels"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("runs") / "run"
    graph = graph_of(300, multilabel=request.param)
    return folder, dorylus.train(graph, dorylus.gcn(hidden=5), epochs=8, threads=1, run_dir=folder)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return folder, dorylus.train(graph_of(300), dorylus.gcn(hidden=5), epochs=8, threads=1, run_dir=folder)


@pytest.mark.parametrize("memory", [None, "1GiB"])
def test_scores_of_the_own_graph_are_those_of_the_result(run: Any, memory: str | None) -> None:
    folder, result = run
    found = dorylus.evaluate_from(folder, graph=result.graph, memory=memory)
    assert list(found.splits) == ["train", "val", "test", "all"]
    assert found.class_names == CLASSES
    for split in ("train", "val", "test"):
        for score in ("accuracy", "micro_f1", "macro_f1"):
            assert getattr(found.splits[split], score) == result.metrics[f"{split}_{score}"]


def test_scores_of_classes_follow_from_predictions_and_labels(run: Any) -> None:
    result = run[1]
    graph, scores = result.graph, result.evaluate().splits["test"]
    mask = graph.test_mask
    predicted, truth = result.predict("classes")[mask], graph.labels[mask]
    assert scores.num_vertices == mask.sum()
    for number in range(3):
        guessed, true = ((each[:, number] == 1 if graph.multilabel else each == number) for each in (predicted, truth))
        hits = (guessed & true).sum()
        assert scores.classes.support[number] == true.sum()
        np.testing.assert_allclose(scores.classes.precision[number], hits / max(1, guessed.sum()))
        np.testing.assert_allclose(scores.classes.recall[number], hits / max(1, true.sum()))
        np.testing.assert_allclose(scores.classes.f1[number], 2 * hits / max(1, guessed.sum() + true.sum()))
    if graph.multilabel:
        assert scores.confusion is None
    else:
        pairs = [[int(((truth == t) & (predicted == p)).sum()) for p in range(3)] for t in range(3)]
        assert scores.confusion.tolist() == pairs


def test_classes_of_another_graph_are_matched_by_name(run: Any) -> None:
    folder, result = run
    other = graph_of(200, seed=3, multilabel=result.graph.multilabel)
    order = [2, 0, 1]  # of the classes in the renamed graph
    labels = other.labels[:, order] if other.multilabel else np.argsort(order)[other.labels]
    renamed = replace(other, labels=labels, class_names=[CLASSES[number] for number in order], trust="everything")
    expected, found = (dorylus.evaluate_from(folder, graph=each).to_dict() for each in (other, renamed))
    assert found == expected


def test_vertices_without_a_label_do_not_count(single: Any) -> None:
    graph = graph_of(200, seed=3)
    labels = np.where(np.arange(200) < 150, graph.labels, -1)
    part = Graph(graph.indptr, graph.indices, graph.features, labels, class_names=CLASSES)
    found = dorylus.evaluate_from(single[0], graph=part)
    assert list(found.splits) == ["all"]
    assert found.splits["all"].num_vertices == 150
    right = (single[1].predict("classes", graph=part) == graph.labels)[:150].mean()
    np.testing.assert_allclose(found.splits["all"].accuracy, right)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, r"has no labels to compare predictions with: give labels, or use dorylus predict"),
        ({"labels": np.full(200, -1)}, r"has no labels to compare"),
        (
            {"labels": np.ones((200, 3), np.uint8)},
            r"any number of labels per vertex, but the model was trained for one",
        ),
        ({"class_names": ("art", "bio", "law")}, r"has the class 'law', which the model was not trained on"),
        ({"class_names": None, "labels": np.arange(200) % 4, "num_classes": 4}, r"has 4 classes, but .* trained on 3"),
    ],
)
def test_labels_that_do_not_fit_the_model_are_refused(single: Any, changes: dict[str, Any], message: str) -> None:
    masks = {f"{split}_mask": np.zeros(200, np.bool_) for split in ("train", "val", "test")}
    with pytest.raises(GraphError, match=message):
        dorylus.evaluate_from(single[0], graph=replace(graph_of(200), **masks, **changes, trust="everything"))


def test_outputs_that_are_not_finite_have_no_scores(single: Any) -> None:
    graph = graph_of(200)
    with pytest.raises(DivergedError, match="not finite"):
        dorylus.evaluate_from(single[0], graph=replace(graph, features=graph.features * 1e30, trust="everything"))
