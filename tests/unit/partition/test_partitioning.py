import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import dense_matrix, graphs

from dorylus.errors import ConfigError
from dorylus.graph.generators.random_graphs import communities, ring, rmat
from dorylus.graph.graph import Graph
from dorylus.partition import METHODS, Partitioning, Quality, make_partitioning


def two_triangles() -> Graph:
    """0-1-2 and 3-4-5, and the edge 2-3 between them."""
    return Graph.from_edges([0, 0, 1, 3, 3, 4, 2], [1, 2, 2, 4, 5, 5, 3], 6)


@pytest.mark.parametrize("method", METHODS)
@given(graphs(), st.integers(1, 24), st.integers(0, 5))
def test_every_vertex_has_a_part_and_every_part_a_vertex(method, graph, servers, seed):
    servers = min(servers, graph.num_vertices)
    made = make_partitioning(graph, servers, method, seed)
    assert made.parts.dtype == np.int32
    assert made.parts.shape == (graph.num_vertices,)
    assert set(made.parts.tolist()) == set(range(servers))
    assert (made.num_parts, made.method) == (servers, method)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_parts(method):
    graph = rmat(num_vertices=2_000, num_edges=20_000, num_features=1)
    first, again = (make_partitioning(graph, 4, method, seed=3).parts for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("method", ["metis", "stream"])
def test_another_seed_gives_other_parts(method):
    graph = rmat(num_vertices=2_000, num_edges=20_000, num_features=1)
    first, other = (make_partitioning(graph, 4, method, seed=seed).parts for seed in (0, 1))
    assert (first != other).any()


@pytest.mark.parametrize("method", METHODS)
def test_the_graph_is_not_changed(method):
    graph = communities(num_vertices=500, num_features=1)
    indptr, indices = graph.indptr.copy(), graph.indices.copy()
    make_partitioning(graph, 3, method)
    np.testing.assert_array_equal(graph.indptr, indptr)
    np.testing.assert_array_equal(graph.indices, indices)


def test_an_unknown_method_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown partitioning method 'ranges'.*hash, metis, range, stream.*'range'"):
        make_partitioning(ring(), 2, "ranges")


@pytest.mark.parametrize("servers", [0, -1, 11])
def test_more_servers_than_vertices_or_none_are_refused(servers):
    with pytest.raises(ConfigError, match=f"servers={servers}, but ring has 10 vertices.*use from 1 to 10"):
        make_partitioning(ring(num_vertices=10), servers, "hash")


def test_a_graph_without_vertices_is_refused():
    with pytest.raises(ConfigError, match="nothing for a server to own"):
        make_partitioning(Graph(np.zeros(1, np.int64), np.zeros(0, np.int32)), 1, "range")


def test_passes_are_for_the_stream_alone():
    with pytest.raises(ConfigError, match="only 'stream' takes passes"):
        make_partitioning(ring(), 2, "hash", passes=2)


def test_a_seed_that_is_no_seed_is_refused():
    with pytest.raises(ConfigError, match="seed=-1"):
        make_partitioning(ring(), 2, "stream", -1)


@pytest.mark.parametrize(
    ("parts", "message"), [([0, 0], "one is empty"), ([0, 2], "go from 0 to 2"), ([-1, 1], "go from -1 to 1")]
)
def test_parts_that_do_not_fit_their_number_are_refused(parts, message):
    with pytest.raises(ConfigError, match=message):
        Partitioning(np.array(parts, np.int32), 2, "range")


def test_the_figures_of_two_triangles():
    quality = Partitioning(np.array([0, 0, 0, 1, 1, 1], np.int32), 2, "range").quality(two_triangles())
    assert quality == Quality(edge_cut=2 / 14, ghosts_per_vertex=2 / 6, vertex_balance=1.0, edge_balance=1.0)
    assert str(quality) == "14.3% of the edges cut, 0.33 ghosts a vertex, vertex balance 1.00, edge balance 1.00"


def test_a_ghost_that_many_edges_lead_to_counts_once():
    star = Graph.from_edges([0] * 5, range(1, 6), 6, undirected=False)
    quality = Partitioning(np.array([0, 1, 1, 1, 1, 1], np.int32), 2, "range").quality(star)
    assert quality.edge_cut == 1.0
    assert quality.ghosts_per_vertex == 1 / 6
    assert quality.vertex_balance == 5 / 3
    assert quality.edge_balance == 2.0


def test_a_graph_without_edges_cuts_none():
    quality = make_partitioning(Graph.from_edges([], [], 4), 2, "stream").quality(Graph.from_edges([], [], 4))
    assert quality == Quality(edge_cut=0.0, ghosts_per_vertex=0.0, vertex_balance=1.0, edge_balance=1.0)


@given(graphs(), st.integers(1, 5))
def test_quality_agrees_with_the_dense_matrix(graph, servers):
    servers = min(servers, graph.num_vertices)
    made = make_partitioning(graph, servers, "hash")
    matrix = dense_matrix(graph) != 0
    across = matrix & (made.parts[:, None] != made.parts[None, :])
    ghosts = sum(int(across[made.parts == part].any(axis=0).sum()) for part in range(servers))
    quality = made.quality(graph)
    assert quality.edge_cut == pytest.approx(across.sum() / max(matrix.sum(), 1))
    assert quality.ghosts_per_vertex == pytest.approx(ghosts / graph.num_vertices)
