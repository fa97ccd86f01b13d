import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import dense_matrix, graphs, in_a_new_process, large_graph, peak_memory, random_parts

import dorylus
from dorylus.graph.adjacency_matrix import Degrees
from dorylus.partition import make_shard, whole_shard


@st.composite
def cut_graphs(draw, *, weighted=False):
    """(graph, parts, all shards)."""
    graph = draw(graphs(weighted=weighted))
    servers = draw(st.integers(1, min(7, graph.num_vertices)))
    parts = random_parts(np.random.default_rng(draw(st.integers(0, 2**32))), graph.num_vertices, servers)
    return graph, parts, [make_shard(graph, parts, server) for server in range(servers)]


def rows_by_vertex(shard, edges, ghosts) -> np.ndarray:
    """A shard's edges as a dense matrix with a column for every vertex of the graph."""
    indptr, indices, weight = edges
    names = np.concatenate([shard.ids, ghosts])
    out = np.zeros((len(shard.ids), shard.num_vertices))
    rows = np.repeat(np.arange(len(shard.ids)), np.diff(indptr))
    out[rows, names[indices]] = 1.0 if weight is None else weight
    return out


@given(cut_graphs())
def test_every_vertex_is_in_the_shard_of_its_owner(case):
    _, parts, shards = case
    for server, shard in enumerate(shards):
        assert (shard.server, shard.num_servers, shard.num_vertices) == (server, len(shards), len(parts))
        np.testing.assert_array_equal(shard.ids, np.flatnonzero(parts == server))


@given(cut_graphs(weighted=True))
def test_a_shard_holds_the_in_edges_of_its_vertices(case):
    graph, _, shards = case
    for shard in shards:
        expected = dense_matrix(graph)[shard.ids]
        np.testing.assert_array_equal(rows_by_vertex(shard, shard.edges, shard.in_ghosts), expected)


@given(cut_graphs(weighted=True))
def test_a_shard_of_a_directed_graph_holds_the_out_edges_of_its_vertices(case):
    graph, _, shards = case
    for shard in shards:
        if graph.directed:
            expected = dense_matrix(graph).T[shard.ids]
            np.testing.assert_array_equal(rows_by_vertex(shard, shard.out, shard.out_ghosts), expected)
        else:
            assert shard.out is None
            assert shard.out_ghosts is shard.in_ghosts
            assert shard.out_degrees is shard.degrees


@given(cut_graphs())
def test_columns_ascend_in_every_row(case):
    for shard in case[2]:
        for edges in filter(None, (shard.edges, shard.out)):
            rows = np.split(edges[1], edges[0][1:-1])
            assert all((np.diff(row) > 0).all() for row in rows)


@given(cut_graphs())
def test_ghosts_are_the_remote_ends_by_owner_and_number(case):
    graph, parts, shards = case
    matrix = dense_matrix(graph) != 0
    for shard in shards:
        for ghosts, owners, reached in (
            (shard.in_ghosts, shard.in_owners, matrix[shard.ids].any(axis=0)),
            (shard.out_ghosts, shard.out_owners, matrix.T[shard.ids].any(axis=0)),
        ):
            remote = np.flatnonzero(reached & (parts != shard.server))
            assert ghosts.tolist() == sorted(remote, key=lambda v: (parts[v], v))
            for owner in range(shard.num_servers):
                assert (parts[ghosts[owners[owner] : owners[owner + 1]]] == owner).all()
            assert (owners[0], owners[-1]) == (0, len(ghosts))


@given(cut_graphs(weighted=True))
def test_a_shard_knows_the_degrees_of_its_vertices_and_ghosts(case):
    graph, _, shards = case
    matrix = dense_matrix(graph)
    for shard in shards:
        for ghosts, degrees in ((shard.in_ghosts, shard.degrees), (shard.out_ghosts, shard.out_degrees)):
            known = np.concatenate([shard.ids, ghosts])
            np.testing.assert_array_equal(degrees.counts, (matrix != 0).sum(axis=1)[known])
            np.testing.assert_array_equal(degrees.loops, np.diag(matrix)[known] != 0)
            np.testing.assert_allclose(degrees.weights, matrix.sum(axis=1)[known], rtol=1e-12)


@given(cut_graphs())
def test_a_shard_without_edges_agrees_in_everything_else(case):
    graph, parts, shards = case
    degrees = Degrees.of(graph)
    for shard in shards:
        outline = make_shard(graph, parts, shard.server, edges=False, degrees=degrees)
        assert (outline.edges, outline.out) == (None, None)
        for name in ("ids", "in_ghosts", "out_ghosts", "in_owners", "out_owners"):
            np.testing.assert_array_equal(getattr(outline, name), getattr(shard, name))
        np.testing.assert_array_equal(outline.degrees.counts, shard.degrees.counts)


def test_the_whole_graph_is_a_shard_of_the_same_arrays():
    graph = dorylus.ring(num_vertices=8)
    shard = whole_shard(graph)
    assert shard.edges[0] is graph.indptr
    assert shard.edges[1] is graph.indices
    assert shard.ids.tolist() == list(range(8))
    assert (shard.num_servers, shard.in_ghosts.size, shard.out_ghosts.size) == (1, 0, 0)


def memory_of_one_shard(edges: bool) -> tuple[int, int, int, int]:
    """Its vertices, its ghosts, the bytes of the graph's edges, and those by which the process grew at most."""
    graph = large_graph(32_000, 400, directed=True)  # 51 MB
    parts = np.random.default_rng(0).permutation(np.arange(graph.num_vertices, dtype=np.int32) % 8)
    make_shard(dorylus.ring(num_vertices=8), np.zeros(8, np.int32), 0)  # whatever is loaded on first use
    with peak_memory() as peak:
        shard = make_shard(graph, parts, 3, edges=edges)
    return shard.ids.size, shard.in_ghosts.size, graph.indices.nbytes, peak.grown


@pytest.mark.parametrize("edges", [True, False])
def test_making_a_shard_takes_the_memory_of_a_shard_and_not_of_the_graph(edges):
    vertices, ghosts, whole, grown = in_a_new_process(memory_of_one_shard, edges)
    assert (vertices, ghosts) == (4_000, 28_000)
    # In-edges and out-edges are an eighth each; counters and maps are a few numbers a vertex.
    assert grown < whole * (0.4 if edges else 0.1)
    assert not edges or grown > whole * 0.2
