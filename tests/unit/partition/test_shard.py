import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import dense_matrix, graphs
from scipy.sparse import csr_array

import dorylus
from dorylus.graph import SparseFeatures
from dorylus.partition import Layout, Shard, make_layout

norms = st.sampled_from(["symmetric", "mean", "none"])


@st.composite
def shards(draw, *, weighted=False):
    graph = draw(graphs(weighted=weighted))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    order = rng.permutation(graph.num_vertices).astype(np.int32)
    deepest = rng.integers(-1, 3, graph.num_vertices).astype(np.int8)
    intervals = draw(st.integers(1, graph.num_vertices))
    return Shard(graph, make_layout(graph.in_degrees(), order, deepest, 2, intervals))


def in_given_order(graph: dorylus.Graph, intervals: int = 2) -> Shard:
    """A shard whose vertices stay where they are."""
    n = graph.num_vertices
    bounds = np.linspace(0, n, intervals + 1).astype(np.int64)
    ends = np.broadcast_to(bounds[1:], (3, intervals))
    return Shard(graph, Layout(np.arange(n, dtype=np.int32), bounds, ends))


def as_matrix(edges) -> np.ndarray:
    """The matrix an adjacency stands for."""
    values = np.ones(edges.num_edges) if edges.values is None else edges.values
    matrix = csr_array((values, edges.indices, edges.indptr), shape=(edges.num_vertices,) * 2).toarray()
    if edges.row_scale is not None:
        matrix = matrix * edges.row_scale[:, None]
    if edges.col_scale is not None:
        matrix = matrix * edges.col_scale[None, :]
    return matrix


def weighted_matrix(graph: dorylus.Graph, norm: str, self_loops: bool) -> np.ndarray:
    """The same by definition, in the graph's own order."""
    matrix = dense_matrix(graph)
    if self_loops:
        loops = np.diag(matrix).copy()
        np.fill_diagonal(matrix, np.where(loops == 0, 1.0, loops))
    if norm == "mean":
        return matrix / np.maximum((matrix != 0).sum(axis=1), 1)[:, None]
    if norm == "symmetric":
        degrees = matrix.sum(axis=1)
        scale = np.where(degrees > 0, 1 / np.sqrt(np.maximum(degrees, 1e-30)), 0.0)
        return matrix * scale[:, None] * scale[None, :]
    return matrix


@given(shards(weighted=True), norms, st.booleans())
def test_the_adjacency_is_the_graphs_in_the_shards_order(shard, norm, self_loops):
    expected = weighted_matrix(shard.graph, norm, self_loops)[np.ix_(shard.ids, shard.ids)]
    np.testing.assert_allclose(as_matrix(shard.adjacency(norm, self_loops)), expected, rtol=1e-5, atol=1e-7)


@given(shards(weighted=True), norms, st.booleans())
def test_the_transpose_has_the_same_edges_from_their_sources(shard, norm, self_loops):
    forward = as_matrix(shard.adjacency(norm, self_loops))
    np.testing.assert_allclose(as_matrix(shard.transpose(norm, self_loops)), forward.T, rtol=1e-6)


@given(shards(), norms, st.booleans(), st.integers(0, 2))
def test_a_pruned_transpose_keeps_only_edges_into_rows_needed_at_its_level(shard, norm, self_loops, level):
    needed = np.zeros(shard.num_vertices, np.bool_)
    for interval in range(shard.layout.num_intervals):
        begin, end = shard.layout.rows(level, interval)
        needed[begin:end] = True
    forward = as_matrix(shard.adjacency(norm, self_loops))
    expected = np.where(needed[:, None], forward, 0.0).T
    np.testing.assert_allclose(as_matrix(shard.transpose(norm, self_loops, level)), expected, rtol=1e-6)


@given(shards(), st.booleans())
def test_reads_are_the_intervals_that_edges_come_from(shard, made_before):
    if made_before:
        shard.adjacency("none", False)
    matrix = dense_matrix(shard.graph)[np.ix_(shard.ids, shard.ids)] != 0
    bounds = shard.layout.bounds
    reads = shard.reads()
    for i in range(shard.layout.num_intervals):
        for j in range(shard.layout.num_intervals):
            block = matrix[bounds[i] : bounds[i + 1], bounds[j] : bounds[j + 1]]
            assert (j in reads.sources[i]) == bool(block.any())
            assert (i in reads.readers[j]) == bool(block.any())


def test_an_adjacency_is_made_once():
    shard = in_given_order(dorylus.ring(num_vertices=8))
    assert shard.adjacency("mean", True) is shard.adjacency("mean", True)
    assert shard.transpose("mean", True) is shard.transpose("mean", True)
    assert shard.transpose("mean", True, 1) is shard.transpose("mean", True)  # every row is needed: nothing to prune


def test_a_symmetric_graph_shares_its_edges_with_its_transpose():
    shard = in_given_order(dorylus.ring(num_vertices=8))
    assert shard.transpose("symmetric", True).indices is shard.adjacency("symmetric", True).indices


def test_features_of_vertices_that_stay_are_not_copied():
    graph = dorylus.ring(num_vertices=8)
    assert in_given_order(graph).dense_features() is graph.features


@given(shards())
def test_features_are_in_the_shards_order(shard):
    np.testing.assert_array_equal(shard.dense_features(), shard.graph.features[shard.ids])


def test_sparse_features_stay_sparse_in_the_shards_order():
    rng = np.random.default_rng(0)
    x = rng.random((6, 20), dtype=np.float32) * (rng.random((6, 20)) < 0.2)
    graph = dorylus.Graph.from_edges([0, 1], [1, 2], 6, features=SparseFeatures.from_dense(x))
    order = rng.permutation(6).astype(np.int32)
    shard = Shard(graph, make_layout(graph.in_degrees(), order, np.full(6, 1, np.int8), 1, 2))
    assert isinstance(shard.sparse_features(), SparseFeatures)
    np.testing.assert_array_equal(shard.sparse_features().to_dense(), x[shard.ids])
    np.testing.assert_array_equal(shard.dense_features(), x[shard.ids])
    assert in_given_order(graph).sparse_features() is graph.features


def test_forgotten_features_come_back_when_they_are_asked_for_again():
    graph = dorylus.ring(num_vertices=8)
    order = np.arange(8, dtype=np.int32)[::-1].copy()
    shard = Shard(graph, make_layout(graph.in_degrees(), order, np.full(8, 1, np.int8), 1, 1))
    before = shard.dense_features()
    assert shard.dense_features() is before
    shard.forget_features()
    assert shard.dense_features() is not before
    np.testing.assert_array_equal(shard.dense_features(), before)
