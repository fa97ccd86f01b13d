"""communities: exactly the requested size, and a graph in which the neighbours carry information on the class."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dorylus.backends import native
from dorylus.errors import ConfigError
from dorylus.graph import Graph, adjacency, communities


def logistic_accuracy(x_NF: np.ndarray, graph: Graph, steps: int = 150) -> float:
    """Test accuracy of multinomial logistic regression by gradient descent on the training rows."""
    assert graph.labels is not None
    x = np.hstack([x_NF, np.ones((len(x_NF), 1))])
    x_train, target = x[graph.train_mask], np.eye(graph.num_classes)[graph.labels[graph.train_mask]]
    w_FC = np.zeros((x.shape[1], graph.num_classes))
    for _ in range(steps):
        logits = x_train @ w_FC
        chance = np.exp(logits - logits.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        w_FC -= 0.5 * x_train.T @ (chance - target) / len(target)
    return float(((x @ w_FC).argmax(axis=1) == graph.labels)[graph.test_mask].mean())


def gathered(graph: Graph) -> np.ndarray:
    a = adjacency(graph, norm="symmetric", self_loops=True)
    out = np.zeros_like(np.asarray(graph.features))
    native.spmm(
        a.indptr, a.indices, np.asarray(graph.features), out, 0, graph.num_vertices,
        row_scale=a.row_scale, col_scale=a.col_scale,
    )  # fmt: skip
    return out


def test_neighbours_determine_the_class_that_own_features_do_not() -> None:
    graph = communities(4_000)
    alone = logistic_accuracy(np.asarray(graph.features), graph)
    with_neighbours = logistic_accuracy(gathered(graph), graph)
    assert 0.2 < alone < 0.6
    assert with_neighbours > 0.85
    assert with_neighbours > alone + 0.3


def test_without_homophily_neighbours_carry_no_information() -> None:
    graph = communities(2_000, homophily=0.0)
    assert logistic_accuracy(gathered(graph), graph) < 0.4


def test_the_graph_keeps_every_rule() -> None:
    graph = communities(500, 5, 8, average_degree=7)
    replace(graph, trust="nothing")
    source, destination = graph.edge_list()
    assert (source != destination).all()
    assert len(np.unique(source.astype(np.int64) * 500 + destination)) == graph.num_edges


@pytest.mark.parametrize(("num_vertices", "degree"), [(1000, 20.0), (1000, 3.5), (400, 60.0), (100, 0.0)])
def test_the_requested_number_of_edges_is_generated(num_vertices: int, degree: float) -> None:
    assert communities(num_vertices, 2, 4, average_degree=degree).num_edges == num_vertices * degree


def test_the_share_of_edges_inside_a_community_is_as_requested() -> None:
    graph = communities(20_000, 10, 2, average_degree=10, homophily=0.7)
    source, destination = graph.edge_list()
    assert graph.labels is not None
    inside = (graph.labels[source] == graph.labels[destination]).mean()
    assert abs(inside - (0.7 + 0.3 / 10)) < 0.02


def test_degrees_have_a_heavy_tail() -> None:
    degrees = communities(20_000, 8, 1, average_degree=10).in_degrees()
    assert degrees.max() > 8 * degrees.mean()


def test_communities_are_of_equal_size() -> None:
    labels = communities(1_003, 10, 1, average_degree=4).labels
    assert labels is not None
    assert set(np.bincount(labels)) == {100, 101}


def test_the_same_seed_gives_the_same_graph_and_another_seed_another() -> None:
    a, b, c = communities(500, seed=1), communities(500, seed=1), communities(500, seed=2)
    assert np.array_equal(a.indices, b.indices)
    assert np.array_equal(np.asarray(a.features), np.asarray(b.features))
    assert np.array_equal(a.train_mask, b.train_mask)
    assert not np.array_equal(a.indices, c.indices)


def test_masks_share_the_vertices_out() -> None:
    graph = communities(1000, split=(0.1, 0.3))
    assert [int(m.sum()) for m in (graph.train_mask, graph.val_mask, graph.test_mask)] == [100, 300, 600]
    assert (graph.train_mask.astype(int) + graph.val_mask + graph.test_mask == 1).all()


def test_multilabel_vertices_have_one_or_two_labels() -> None:
    graph = communities(2_000, 6, 8, multilabel=True)
    assert graph.multilabel
    assert graph.labels is not None
    counts = np.bincount(graph.labels.sum(axis=1), minlength=4)
    assert counts[0] == counts[3] == 0
    assert 600 < counts[2] < 1100
    replace(graph, trust="nothing")


def test_multilabel_neighbours_share_a_label_more_often_than_strangers() -> None:
    graph = communities(4_000, 10, 2, multilabel=True)
    assert graph.labels is not None
    labels = graph.labels.astype(bool)
    source, destination = graph.edge_list()
    assert (labels[source] & labels[destination]).any(axis=1).mean() > 0.7
    assert (labels & np.roll(labels, 1, axis=0)).any(axis=1).mean() < 0.35


REFUSED = {
    "more classes than vertices": {"num_vertices": 3, "num_classes": 4},
    "no class": {"num_classes": 0},
    "homophily beyond 1": {"homophily": 1.5},
    "a degree that cannot fit": {"num_vertices": 100, "num_classes": 10, "average_degree": 50},
    "a negative degree": {"average_degree": -1},
    "a flat exponent": {"degree_exponent": 1.0},
    "shares beyond the whole": {"num_vertices": 100, "average_degree": 2, "split": (0.8, 0.4)},
}


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED.keys())
def test_invalid_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"use|at least"):
        communities(**arguments)
