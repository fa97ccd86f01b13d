"""Graph: its content, and the error message of each broken rule."""

from typing import Any

import numpy as np
import pytest

from dorylus.errors import GraphError
from dorylus.graph import Graph, SparseFeatures

N = 4


def path_graph(**changes: Any) -> Graph:
    """0 - 1 - 2 - 3 with two features and two classes."""
    fields: dict[str, Any] = {
        "features": np.arange(8, dtype=np.float32).reshape(N, 2),
        "labels": np.array([0, 1, 0, 1]),
        "train_mask": np.array([True, False, False, False]),
    }
    return Graph.from_edges([0, 1, 2], [1, 2, 3], N, **(fields | changes))


def test_counts_come_from_the_arrays() -> None:
    graph = path_graph()
    assert (graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes) == (4, 6, 2, 2)
    assert not graph.multilabel
    assert graph.in_degrees().tolist() == [1, 2, 2, 1]


def test_row_v_lists_the_sources_of_its_in_edges() -> None:
    graph = Graph.from_edges([2, 0, 3], [1, 1, 0], N, undirected=False)
    assert graph.indptr.tolist() == [0, 1, 3, 3, 3]
    assert graph.indices.tolist() == [3, 0, 2]
    source, destination = graph.edge_list()
    assert source.tolist() == [3, 0, 2]
    assert destination.tolist() == [0, 1, 1]


def test_arrays_take_their_one_form_whatever_they_came_in() -> None:
    graph = path_graph(features=np.ones((N, 2)), labels=np.array([0, 1, 0, 1], np.int16))
    assert graph.features.dtype == np.float32
    assert graph.labels is not None
    assert graph.labels.dtype == np.int64
    assert (graph.indptr.dtype, graph.indices.dtype) == (np.int64, np.int32)


def test_feature_rows_lie_in_one_piece() -> None:
    by_column = np.asfortranarray(np.ones((N, 3), np.float32))
    assert isinstance(features := path_graph(features=by_column).features, np.ndarray)
    assert features.strides[1] == features.itemsize


def test_features_and_masks_may_be_left_out() -> None:
    graph = Graph.from_edges([0], [1])
    assert graph.features.shape == (2, 0)
    assert graph.labels is None
    assert graph.num_classes == 0
    assert not graph.train_mask.any()
    assert graph.test_mask.shape == (2,)


def test_a_label_matrix_makes_a_multilabel_graph() -> None:
    graph = path_graph(labels=np.eye(N, 3, dtype=bool))
    assert graph.multilabel
    assert graph.num_classes == 3
    assert graph.labels is not None
    assert graph.labels.dtype == np.uint8


def test_num_classes_may_exceed_the_labels_seen() -> None:
    assert path_graph(num_classes=5).num_classes == 5


def test_its_repr_is_one_readable_line() -> None:
    assert repr(path_graph(name="path")) == (
        "Graph('path': 4 vertices, 6 directed edges (undirected), 2 features, 2 classes, 1 train / 0 val / 0 test)"
    )


def test_its_repr_mentions_edge_weights() -> None:
    graph = Graph.from_edges([0], [1], undirected=False, edge_weight=[0.5])
    assert "1 directed edges (directed, weighted)" in repr(graph)


def test_an_empty_graph_is_a_graph() -> None:
    graph = Graph(np.zeros(1, np.int64), np.zeros(0, np.int32))
    assert (graph.num_vertices, graph.num_edges) == (0, 0)


@pytest.mark.parametrize("sparse", [False, True])
def test_row_normalised_rows_sum_to_one_and_zero_rows_stay(sparse: bool) -> None:
    dense = np.array([[1, 3], [0, 0], [2, 2], [0, 5]], np.float32)
    features = SparseFeatures.from_dense(dense) if sparse else dense
    normalised = path_graph(features=features).row_normalised().features
    found = normalised.to_dense() if isinstance(normalised, SparseFeatures) else normalised
    assert found.tolist() == [[0.25, 0.75], [0, 0], [0.5, 0.5], [0, 1]]


def test_row_normalised_leaves_the_graph_it_came_from() -> None:
    graph = path_graph()
    before = np.array(graph.features)
    graph.row_normalised()
    assert np.array_equal(np.asarray(graph.features), before)


nan_at_2_1 = np.ones((N, 2))
nan_at_2_1[2, 1] = np.nan

BROKEN = {
    "features of too few rows": ({"features": np.ones((3, 2))}, r"shape \[3, 2\], but the graph has 4 vertices"),
    "features of one dimension": ({"features": np.ones(N)}, r"must have shape \[4, columns\]"),
    "features of text": ({"features": np.full((N, 2), "a")}, "must hold numbers"),
    "a feature that is no number": ({"features": nan_at_2_1}, r"features\[2, 1\] is nan \(vertex 2, column 1\)"),
    "a feature too large for float32": ({"features": np.full((N, 2), 1e39)}, r"features\[0, 0\] is inf"),
    "a sparse feature that is no number": (
        {"features": SparseFeatures([0, 0, 0, 1, 1], [1], [np.inf], 2)},
        r"features\[2, 1\] is inf",
    ),
    "sparse features of too few rows": ({"features": SparseFeatures([0, 0], [], [], 2)}, r"shape \[1, 2\]"),
    "a label below -1": ({"labels": np.array([0, -2, 0, 1])}, "label of vertex 1 is -2"),
    "a label beyond the classes": (
        {"labels": np.array([0, 1, 7, 1]), "num_classes": 3},
        "vertex 2 is 7, but there are 3",
    ),
    "too few labels": ({"labels": np.array([0, 1])}, "2 labels, but 4 vertices"),
    "labels of fractions": ({"labels": np.ones(N)}, "must be whole numbers of shape"),
    "a label matrix with a two": ({"labels": np.full((N, 2), 2)}, r"labels\[0, 0\] is 2"),
    "a label matrix of another width": ({"labels": np.eye(N, 3, dtype=bool), "num_classes": 2}, "3 columns"),
    "a mask of vertex numbers": ({"train_mask": np.array([0, 2])}, r"train_mask is int64 of shape \[2\]"),
    "a mask of the wrong length": ({"val_mask": np.ones(3, bool)}, r"val_mask is bool of shape \[3\]"),
    "a mask of an unlabelled vertex": (
        {"labels": np.array([0, 1, -1, 1]), "test_mask": np.ones(N, bool)},
        "test_mask selects vertex 2, whose label is -1",
    ),
    "a mask without labels": ({"labels": None}, "selects vertex 0, but the graph has no labels"),
}


@pytest.mark.parametrize(("changes", "sentence"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_rule_is_named(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        path_graph(**changes)


INDPTR = np.array([0, 1, 3, 5, 6])
INDICES = np.array([1, 0, 2, 1, 3, 2], np.int32)

BROKEN_ROWS = {
    "an edge from a missing vertex": (
        INDPTR,
        [1, 0, 9, 1, 3, 2],
        r"edge 9 -> 1 \(number 2\) names vertex 9.*num_vertices=10",
    ),
    "an edge from a negative vertex": (INDPTR, [1, 0, -3, 1, 3, 2], "edge -3 -> 1.*Number the vertices from 0"),
    "sources out of order": (
        INDPTR,
        [1, 2, 0, 1, 3, 2],
        "sources of vertex 1 are not in ascending order: 2 comes before 0",
    ),
    "offsets that fall": ([0, 3, 1, 5, 6], INDICES, "indptr falls from 3 to 1 at row 1"),
    "offsets that start late": ([1, 1, 3, 5, 6], INDICES, "indptr starts at 1"),
    "offsets that end early": ([0, 1, 3, 5, 5], INDICES, "indptr ends at 5, but there are 6"),
    "no offsets": ([], INDICES, "indptr is empty"),
    "an edge without its reverse": (INDPTR, [1, 0, 2, 1, 3, 1], r"edge 1 -> 3 has no edge 3 -> 1.*directed=True"),
    "a source beyond 32 bits": ([0, 1], np.array([2**40]), r"indices\[0\] is 1099511627776, beyond the 2,147,483,647"),
    "offsets of fractions": ([0.5, 1.5], INDICES, "indptr must be a one-dimensional array of whole numbers"),
}


@pytest.mark.parametrize(("indptr", "indices", "sentence"), BROKEN_ROWS.values(), ids=BROKEN_ROWS.keys())
def test_broken_rows_are_named(indptr: Any, indices: Any, sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        Graph(indptr, indices)


def test_directed_rows_need_no_reverse() -> None:
    assert Graph(INDPTR, [1, 0, 2, 1, 3, 1], directed=True).num_edges == 6


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_weight_that_is_no_number_is_named(bad: float) -> None:
    weight = np.array([1, 1, 1, 1, bad, 1], np.float32)
    with pytest.raises(GraphError, match=f"weight of edge 3 -> 2 is {bad}"):
        Graph(INDPTR, INDICES, edge_weight=weight)


def test_negative_weights_are_allowed() -> None:
    assert Graph(INDPTR, INDICES, edge_weight=np.full(6, -1.0)).edge_weight is not None


def test_weights_of_both_directions_must_agree() -> None:
    with pytest.raises(GraphError, match=r"edge 1 -> 0 weighs 2.0 and its reverse 1.0"):
        Graph(INDPTR, INDICES, edge_weight=np.array([2, 1, 1, 1, 1, 1], np.float32))


def test_too_few_weights_are_refused() -> None:
    with pytest.raises(GraphError, match=r"edge_weight has shape \[2\], but there are 6"):
        Graph(INDPTR, INDICES, edge_weight=np.ones(2))


def test_bounds_are_checked_even_for_trusted_arrays() -> None:
    with pytest.raises(GraphError, match="names vertex 9"):
        Graph(INDPTR, [1, 0, 9, 1, 3, 2], trust="everything")
