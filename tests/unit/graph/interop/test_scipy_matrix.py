"""SciPy sparse matrices to Graph and back."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from dorylus.errors import GraphError
from dorylus.graph import Graph, SparseFeatures, communities

squares = st.integers(1, 6).flatmap(
    lambda n: arrays(np.float32, (n, n), elements=st.sampled_from([0.0, 0.0, 1.0, 1.0, 2.5, -1.0]))
)


@settings(deadline=None)
@given(squares)
def test_a_matrix_survives_the_round_trip(dense: np.ndarray) -> None:
    graph = Graph.from_scipy(sparse.csr_array(dense))
    assert np.array_equal(graph.to_scipy().toarray(), dense)
    assert graph.directed == (not np.array_equal(dense, dense.T))
    assert (graph.edge_weight is None) == bool(np.isin(dense, [0, 1]).all())


def test_entry_u_v_is_the_edge_from_u_to_v() -> None:
    graph = Graph.from_scipy(sparse.coo_array(([1.0], ([2], [0])), shape=(3, 3)))
    source, destination = graph.edge_list()
    assert (source.tolist(), destination.tolist()) == ([2], [0])


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix, sparse.lil_array])
def test_every_kind_of_matrix_is_read(kind: Any) -> None:
    dense = np.array([[0, 1], [0, 0]], np.float64)
    assert Graph.from_scipy(kind(dense)).num_edges == 1


def test_repeated_entries_are_added_and_stored_zeros_are_no_edges() -> None:
    matrix = sparse.coo_array(([1.0, 2.0, 0.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    graph = Graph.from_scipy(matrix)
    assert graph.num_edges == 1
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [3.0]
    assert matrix.nnz == 3  # the caller's matrix is left alone


def test_weights_may_be_ignored() -> None:
    assert Graph.from_scipy(sparse.csr_array(np.array([[0, 7.0], [7.0, 0]])), weighted=False).edge_weight is None


def test_features_may_be_a_sparse_matrix() -> None:
    words = sparse.csr_matrix(np.array([[0, 2.0, 0], [1.0, 0, 0]]))
    graph = Graph.from_scipy(sparse.csr_array(np.ones((2, 2))), features=words, labels=[0, 1], name="two")
    assert isinstance(graph.features, SparseFeatures)
    assert graph.features.to_dense().tolist() == words.toarray().tolist()
    assert (graph.name, graph.num_classes) == ("two", 2)


def test_a_generated_graph_survives_the_round_trip() -> None:
    graph = communities(100, 2, 4, average_degree=6)
    back = Graph.from_scipy(graph.to_scipy())
    assert not back.directed
    assert np.array_equal(back.indices, graph.indices)


def test_a_matrix_that_is_not_square_is_refused() -> None:
    with pytest.raises(GraphError, match=r"shape \[2, 3\]"):
        Graph.from_scipy(sparse.csr_array((2, 3)))


def test_a_weight_that_is_no_number_is_named() -> None:
    with pytest.raises(GraphError, match="weight of edge 0 -> 1 is nan"):
        Graph.from_scipy(sparse.csr_array(np.array([[0, np.nan], [0, 0]])))
