"""Vertex orders: always a permutation, with the property that each is made for."""

import numpy as np
import pytest

from dorylus.errors import ConfigError
from dorylus.graph import Graph, communities, ring, rmat, vertex_order

METHODS = ["none", "degree", "bfs", "rcm"]


def mean_gap(graph: Graph, new_to_old: np.ndarray) -> float:
    """How far apart the numbers of two neighbours are, on average."""
    new = np.argsort(new_to_old)
    source, destination = graph.edge_list()
    return float(np.abs(new[source].astype(np.int64) - new[destination]).mean())


def two_rings_and_isolated_vertices() -> Graph:
    a, b = np.arange(5), np.arange(5, 12)
    return Graph.from_edges(np.concatenate([a, b]), np.concatenate([np.roll(a, -1), np.roll(b, -1)]), 15)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "graph",
    [
        communities(300, 4, 2, average_degree=6),
        rmat(256, 1024, num_features=2, directed=True),
        two_rings_and_isolated_vertices(),
        Graph.from_edges([], [], 3),
        Graph.from_edges([], [], 0),
    ],
    ids=["communities", "directed rmat", "components", "no edges", "nothing"],
)
def test_every_order_is_a_permutation(graph: Graph, method: str) -> None:
    found = vertex_order(graph, method)
    assert found.dtype == np.int32
    assert np.array_equal(np.sort(found), np.arange(graph.num_vertices))


def test_degree_order_puts_the_highest_degree_first() -> None:
    graph = rmat(256, 2048, num_features=1)
    degrees = graph.in_degrees()[vertex_order(graph, "degree")]
    assert (np.diff(degrees) <= 0).all()


@pytest.mark.parametrize("method", ["bfs", "rcm"])
def test_a_scrambled_ring_is_unrolled(method: str) -> None:
    tidy = ring(1000, num_features=1)
    number = np.random.default_rng(0).permutation(1000)
    source, destination = tidy.edge_list()
    scrambled = Graph.from_edges(number[source], number[destination], 1000)
    assert mean_gap(scrambled, vertex_order(scrambled, "none")) > 300
    assert mean_gap(scrambled, vertex_order(scrambled, method)) < 3


def test_breadth_first_keeps_components_together_largest_first() -> None:
    found = vertex_order(two_rings_and_isolated_vertices(), "bfs")
    assert set(found[:7]) == set(range(5, 12))
    assert set(found[7:12]) == set(range(5))


def test_an_unknown_order_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"bfs, degree, none, rcm.*Did you mean 'degree'"):
        vertex_order(ring(), "degrees")
