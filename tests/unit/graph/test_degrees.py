"""The quantities of a vertex that normalisation uses, against their definition."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dorylus.graph.adjacency_matrix as adjacency_matrix
from dorylus.errors import ConfigError, GraphError
from dorylus.graph import Graph
from dorylus.graph.adjacency_matrix import Degrees


def random_graph(seed: int, *, n: int = 12, share: float = 0.2) -> tuple[Graph, np.ndarray]:
    """A weighted directed graph, and its matrix of weights."""
    rng = np.random.default_rng(seed)
    matrix = (rng.random((n, n)) < share) * rng.random((n, n)).astype(np.float32)
    destination, source = np.nonzero(matrix)
    weight = matrix[destination, source].astype(np.float32)
    return Graph.from_edges(source, destination, n, undirected=False, edge_weight=weight), matrix


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 0.9]), st.sampled_from([1, 7, 1 << 22]))
def test_counts_weights_and_self_loops_follow_the_definition(seed: int, share: float, block: int) -> None:
    graph, matrix = random_graph(seed, share=share)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adjacency_matrix, "BLOCK", block)  # sums are the same however many rows are added up together
        found = Degrees.of(graph)
    np.testing.assert_array_equal(found.counts, (matrix != 0).sum(axis=1))
    np.testing.assert_array_equal(found.loops, np.diag(matrix) != 0)
    assert found.weights is not None
    assert found.weights.dtype == np.float64
    np.testing.assert_allclose(found.weights, matrix.sum(axis=1, dtype=np.float64), rtol=1e-12)


def test_an_unweighted_graph_has_no_sums() -> None:
    assert Degrees.of(Graph.from_edges([0], [1])).weights is None


def test_the_degrees_of_some_vertices_are_in_the_given_order() -> None:
    graph, _ = random_graph(1)
    every, some = Degrees.of(graph), Degrees.of(graph).of_vertices(np.array([5, 0, 5]))
    assert some.counts.tolist() == every.counts[[5, 0, 5]].tolist()
    assert some.loops.tolist() == every.loops[[5, 0, 5]].tolist()


def test_a_graph_without_vertices_has_no_degrees() -> None:
    found = Degrees.of(Graph.from_edges([], [], 0))
    assert (found.counts.size, found.loops.size) == (0, 0)
    scale, _ = found.scales("symmetric", True)
    assert scale is not None
    assert scale.size == 0


def test_self_loops_count_only_where_they_are_added() -> None:
    graph = Graph.from_edges([0, 1], [1, 1], 3, undirected=False)  # 1 has a self loop, 0 and 2 have no edge
    row_scale, col_scale = Degrees.of(graph).scales("mean", True)
    assert row_scale is not None
    assert row_scale.tolist() == [1.0, 0.5, 1.0]
    assert col_scale is None


def test_the_error_about_a_negative_sum_names_its_vertex() -> None:
    graph = Graph.from_edges([0], [1], undirected=False, edge_weight=[-2.0])
    some = Degrees.of(graph).of_vertices(np.array([0, 1]))
    with pytest.raises(GraphError, match=r"in-edges of vertex 71 add up to -2.0"):
        some.scales("symmetric", False, np.array([70, 71], np.int32))


def test_an_unknown_normalisation_is_refused() -> None:
    norm: Any = "symetric"
    with pytest.raises(ConfigError, match="Did you mean 'symmetric'"):
        Degrees.of(Graph.from_edges([0], [1])).scales(norm, False)
