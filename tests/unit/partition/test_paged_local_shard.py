from itertools import pairwise

import numpy as np
import pytest

import dorylus
from dorylus.graph import SparseFeatures
from dorylus.paging import Pager
from dorylus.partition import LocalShard, PagedLocalShard, plain_partition_plan, whole_shard
from dorylus.partition.paged_shard import interval_in_memory

SIZE, INTERVALS, LAYERS = 600, 4, 2
NORMS = [("symmetric", True), ("symmetric", False), ("mean", False), ("mean", True), ("none", False), ("none", True)]


def made(directed, weighted, **more):
    rng = np.random.default_rng(2)
    ends = (SIZE * rng.random((2, 5000)) ** 2).astype(np.int64)
    source, destination = np.unique(ends if directed else np.sort(ends, axis=0), axis=1)
    weight = rng.random(source.size, np.float32) if weighted else None
    features = rng.standard_normal((SIZE, 20), dtype=np.float32)
    given = {"features": features, "edge_weight": weight} | more
    return dorylus.Graph.from_edges(source, destination, SIZE, undirected=not directed, **given)


@pytest.fixture(
    scope="module", params=[(False, False), (True, False), (True, True)], ids=["both ways", "one way", "weighted"]
)
def graph(request):
    return made(*request.param)


@pytest.fixture(params=[False, True], ids=["in memory", "stored"])
def pair(request, graph, tmp_path):
    """The local shard of a graph in memory, and the paged one of the same plan."""
    found = graph
    if request.param:
        graph.save(tmp_path / "graph")
        found = dorylus.Graph.open(tmp_path / "graph")
    pager, plan = Pager(tmp_path, deadline_s=10), plain_partition_plan(graph.indptr, LAYERS, INTERVALS)
    yield LocalShard(whole_shard(graph), plan, graph), PagedLocalShard(found, plan, pager)
    pager.close()


def rows_of(shard, edges, interval):
    """(offsets from 0, columns, weights) of an interval, and the scales of all rows and columns."""
    begin, end = shard.layout.bounds[interval : interval + 2]
    with interval_in_memory(edges.pages, interval):
        first, last = edges.indptr[begin], edges.indptr[end]
        values = None if edges.values is None else edges.values[first:last].copy()
        return edges.indptr[begin : end + 1] - first, edges.indices[first:last].copy(), values


def assert_same_edges(plain, paged, mine, theirs):
    for interval in range(INTERVALS):
        for a, b in zip(rows_of(paged, mine, interval), rows_of(plain, theirs, interval), strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_array_equal(a, b)
    for a, b in ((mine.row_scale, theirs.row_scale), (mine.col_scale, theirs.col_scale)):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("norm", "loops"), NORMS)
def test_edges_and_scales_are_those_of_the_local_shard_in_memory(pair, norm, loops):
    plain, paged = pair
    assert_same_edges(plain, paged, paged.adjacency(norm, loops), plain.adjacency(norm, loops))


@pytest.mark.parametrize(("norm", "loops"), NORMS)
def test_transposed_edges_and_scales_are_those_of_the_local_shard_in_memory(pair, norm, loops):
    plain, paged = pair
    back = plain.transpose(norm, loops, LAYERS)
    assert_same_edges(plain, paged, paged.transpose(norm, loops, LAYERS), back)


def test_edges_with_self_loops_are_made_once_for_every_normalisation(pair):
    _, paged = pair
    first, second = paged.adjacency("symmetric", True), paged.adjacency("none", True)
    assert first.indices is second.indices


def test_features_are_those_of_the_graph(pair, graph):
    _, paged = pair
    rows = paged.dense_features()
    for interval, (begin, end) in enumerate(pairwise(paged.layout.bounds)):
        with interval_in_memory(() if paged.paged_features is None else (paged.paged_features,), interval):
            np.testing.assert_array_equal(rows[begin:end], graph.features[begin:end])
            np.testing.assert_array_equal(paged.feature_rows(begin, end), graph.features[begin:end])


def test_features_are_paged_where_they_lie_in_a_file(pair):
    _, paged = pair
    stored = paged.graph.store is not None
    assert (paged.paged_features is not None) is stored
    assert bool(paged.adjacency("none", False).pages) is stored


def test_every_interval_reads_every_other(pair):
    _, paged = pair
    all_intervals = (frozenset(range(INTERVALS)),) * INTERVALS
    assert (paged.reads().sources, paged.reads().readers) == (all_intervals, all_intervals)


def test_sparse_features_are_not_paged_and_their_rows_are_given_dense(tmp_path):
    dense = np.eye(SIZE, 20, dtype=np.float32)
    kept = dense != 0
    indptr = np.concatenate([[0], kept.sum(axis=1).cumsum()])
    sparse = SparseFeatures(indptr, np.nonzero(kept)[1].astype(np.int32), dense[kept], 20)
    graph = made(True, False, features=sparse)
    graph.save(tmp_path / "graph")
    pager = Pager(tmp_path, deadline_s=10)
    paged = PagedLocalShard(
        dorylus.Graph.open(tmp_path / "graph"), plain_partition_plan(graph.indptr, LAYERS, INTERVALS), pager
    )
    assert paged.paged_features is None
    assert paged.sparse_features().num_columns == 20
    np.testing.assert_array_equal(paged.feature_rows(10, 30), dense[10:30])
    pager.close()
