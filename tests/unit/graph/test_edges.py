"""From an edge list to rows: order, both directions, repeats and bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylus.errors import GraphError
from dorylus.graph import Graph

edge_lists = st.integers(1, 9).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
)


@settings(deadline=None)
@given(edge_lists, st.booleans())
def test_the_graph_holds_exactly_the_edges_given(case: tuple[int, list[tuple[int, int]]], undirected: bool) -> None:
    n, edges = case
    ends = np.array(edges, np.int64).reshape(-1, 2)
    graph = Graph.from_edges(ends[:, 0], ends[:, 1], n, undirected=undirected)
    expected = {(u, v) for u, v in edges} | ({(v, u) for u, v in edges} if undirected else set())
    found = list(zip(*(ends.tolist() for ends in graph.edge_list()), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == expected
    Graph(graph.indptr, graph.indices, directed=graph.directed)  # and keeps every rule


@settings(deadline=None)
@given(edge_lists, st.booleans())
def test_every_edge_keeps_its_weight(case: tuple[int, list[tuple[int, int]]], undirected: bool) -> None:
    n, edges = case
    ends = np.array(edges, np.int64).reshape(-1, 2)
    weight = ends.min(axis=1) * 10 + ends.max(axis=1) if edges else np.zeros(0)
    graph = Graph.from_edges(ends[:, 0], ends[:, 1], n, undirected=undirected, edge_weight=weight)
    assert graph.edge_weight is not None
    source, destination = graph.edge_list()
    assert (
        graph.edge_weight.tolist() == (np.minimum(source, destination) * 10 + np.maximum(source, destination)).tolist()
    )


def test_the_number_of_vertices_defaults_to_the_largest_number_plus_one() -> None:
    assert Graph.from_edges([0, 7], [3, 1]).num_vertices == 8


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32, np.int64])
def test_vertex_numbers_may_come_in_any_width(dtype: type) -> None:
    assert Graph.from_edges(np.array([0, 7], dtype), np.array([3, 1], dtype)).num_edges == 4


def test_an_edge_to_a_missing_vertex_is_named_with_its_cure() -> None:
    with pytest.raises(GraphError, match=r"edge 1 -> 4 \(number 1\) names vertex 4.*0 to 3.*num_vertices=5"):
        Graph.from_edges([0, 1, 9], [1, 4, 2], 4)


def test_a_negative_vertex_is_named() -> None:
    with pytest.raises(GraphError, match=r"edge -1 -> 2 \(number 1\).*Number the vertices from 0"):
        Graph.from_edges([0, -1], [1, 2])


def test_numbers_with_gaps_beyond_32_bits_are_refused_with_the_cure() -> None:
    with pytest.raises(GraphError, match=r"return_inverse=True"):
        Graph.from_edges([0], [10**12])


def test_as_many_sources_as_destinations_are_needed() -> None:
    with pytest.raises(GraphError, match="3 sources but 2 destinations"):
        Graph.from_edges([0, 1, 2], [1, 2])


def test_fractions_are_not_vertex_numbers() -> None:
    with pytest.raises(GraphError, match="source must be a one-dimensional array of whole numbers, found float64"):
        Graph.from_edges([0.5], [1])


def test_two_weights_for_one_edge_are_refused_rather_than_guessed() -> None:
    with pytest.raises(GraphError, match=r"edge 1 -> 0 is given twice, with weights 2.0 and 1.0"):
        Graph.from_edges([0, 1], [1, 0], edge_weight=[1.0, 2.0])


def test_the_two_directions_of_a_directed_graph_may_weigh_differently() -> None:
    graph = Graph.from_edges([0, 1], [1, 0], undirected=False, edge_weight=[1.0, 2.0])
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [2.0, 1.0]


def test_a_weight_that_is_no_number_is_named() -> None:
    with pytest.raises(GraphError, match=r"weight of edge 1 -> 2 \(number 1\) is nan"):
        Graph.from_edges([0, 1], [1, 2], edge_weight=[1.0, np.nan])


def test_one_weight_an_edge_is_needed() -> None:
    with pytest.raises(GraphError, match=r"edge_weight has shape \[1\], but there are 2 edges"):
        Graph.from_edges([0, 1], [1, 2], edge_weight=[1.0])
