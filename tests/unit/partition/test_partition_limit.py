"""Partitioning under a memory limit writes what it writes without one, or is refused beforehand."""

import shutil
from collections import namedtuple

import numpy as np
import pytest

import dorylus
from dorylus.errors import ConfigError, DataError
from dorylus.partition import limit, make_partitioning, open_shards, save_shards
from dorylus.partition.edge_reader import read_edges
from dorylus.partition.limit import PartitionShares
from dorylus.partition.shard_store import check_joining, partition_needs

SIZE = 900
TINY = PartitionShares(block_edges=300, limited=True, in_any_order=False, sort_bytes=1 << 20, merge_bytes=1 << 20)


def some_graph(*, directed: bool, weighted: bool) -> dorylus.Graph:
    rng = np.random.default_rng(3)
    source, destination = np.unique((SIZE * rng.random((2, 6000)) ** 2).astype(np.int64), axis=1)
    if not directed:
        source, destination = np.unique(np.sort(np.stack([source, destination]), axis=0), axis=1)
    weight = rng.random(source.size, np.float32) if weighted else None
    return dorylus.Graph.from_edges(
        source, destination, SIZE, undirected=not directed, edge_weight=weight,
        features=rng.random((SIZE, 4), np.float32), labels=rng.integers(0, 3, SIZE), train_mask=rng.random(SIZE) < 0.5,
    )  # fmt: skip


@pytest.fixture(scope="module", params=["undirected", "directed", "undirected weighted", "directed weighted"])
def graph(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs") / "graph"
    some_graph(directed=request.param.startswith("directed"), weighted="weighted" in request.param).save(folder)
    return dorylus.Graph.open(folder)


@pytest.fixture
def in_small_blocks(monkeypatch):
    """A limit leaves room for blocks of 300 edges, and none for all edges."""
    shares_of = limit.shares_of
    for module in ("partitioning", "shard_store"):
        monkeypatch.setattr(
            f"dorylus.partition.{module}.shares_of",
            lambda graph, need, memory: TINY if memory else shares_of(graph, need, memory),
        )


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize(
    "servers", [1, pytest.param(2, marks=pytest.mark.soak), 3, pytest.param(4, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("method", ["hash", "range", "stream"])
def test_shards_under_a_limit_are_those_without_one(graph, in_small_blocks, tmp_path, method, servers):
    free = make_partitioning(graph, servers, method, seed=2)
    bound = make_partitioning(graph, servers, method, seed=2, memory="1GiB", scratch_dir=tmp_path)
    np.testing.assert_array_equal(bound.parts, free.parts)
    assert bound.quality(graph, memory="1GiB") == free.quality(graph)
    save_shards(tmp_path / "free", graph, free)
    save_shards(tmp_path / "bound", graph, bound, memory="1GiB")
    assert contents(tmp_path / "bound") == contents(tmp_path / "free")
    assert {each.name for each in tmp_path.iterdir()} == {"free", "bound"}


def test_a_single_pass_is_the_same_too(graph, in_small_blocks):
    free, bound = (make_partitioning(graph, 3, "stream", passes=1, memory=memory).parts for memory in (None, "1GiB"))
    np.testing.assert_array_equal(bound, free)


def test_out_edges_of_an_ingested_store_are_read_from_it(in_small_blocks, tmp_path):
    source, destination = some_graph(directed=True, weighted=False).edge_list()
    ingested = dorylus.Graph.ingest((source, destination), tmp_path / "g", undirected=False, num_vertices=SIZE)
    made = make_partitioning(ingested, 3, "hash")
    save_shards(tmp_path / "free", some_graph(directed=True, weighted=False), made)
    save_shards(tmp_path / "bound", ingested, made, memory="1GiB")
    assert contents(tmp_path / "bound") == contents(tmp_path / "free")


def test_more_parts_than_are_read_at_once(in_small_blocks, tmp_path):
    graph = some_graph(directed=True, weighted=False)
    made = make_partitioning(graph, 40, "hash")
    save_shards(tmp_path / "bound", graph, made, memory="1GiB")
    shards = open_shards(tmp_path / "bound", verify=True)
    ghosts = sum(shards.shard(server).in_ghosts.size for server in range(40))
    assert made.quality(graph).ghosts_per_vertex == ghosts / SIZE
    np.testing.assert_array_equal(shards.graph().indices, graph.indices)


def test_sorted_rows_come_in_the_requested_order(graph, tmp_path):
    members = np.random.default_rng(0).permutation(SIZE).astype(np.int32)
    with read_edges(graph, TINY, tmp_path) as reader, reader.in_order(members, np.arange(SIZE + 1)) as found:
        assert found.bounds.size > 3
        rows = [
            indices[near[row] : near[row + 1]].tolist()
            for _, _, (near, indices, _) in found.blocks()
            for row in range(near.size - 1)
        ]
    assert rows == [graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist() for v in members]


@pytest.mark.parametrize("method", ["hash", "range", "stream"])
def test_a_limit_that_cannot_be_kept_is_refused_with_one_that_can(graph, tmp_path, method):
    with pytest.raises(
        ConfigError, match=r"takes [\d.]+ [MG]iB: .* bytes for each of 900 vertices.* Give at least \d+MiB"
    ):
        partition_needs(graph, 2, method, "1MiB", out=tmp_path / "shards")
    assert list(tmp_path.iterdir()) == []
    plan = partition_needs(graph, 2, method, "8GiB", out=tmp_path / "shards")
    assert plan.least < plan.limit
    assert f"{method}: keeps to 8.0 GiB" in str(plan)


def test_metis_is_refused_with_the_cure(graph, monkeypatch):
    monkeypatch.setattr(limit, "METIS_LINK_BYTES", 1 << 30)
    with pytest.raises(ConfigError, match=r"what METIS makes of the edges.* or use the method 'stream'"):
        make_partitioning(graph, 2, "metis", memory="4GiB")


def test_a_disk_that_is_too_full_is_refused_before_anything_is_written(graph, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(1, 1, 100))
    with pytest.raises(DataError, match=r"writing the shards takes .* but 100 B are free"):
        save_shards(tmp_path / "shards", graph, make_partitioning(graph, 2, "hash"))
    assert list(tmp_path.iterdir()) == []


def test_shards_that_cannot_be_put_together_within_a_limit_are_refused(graph, tmp_path):
    save_shards(tmp_path / "shards", graph, make_partitioning(graph, 2, "hash"))
    shards = open_shards(tmp_path / "shards")
    check_joining(shards, "4GiB")
    with pytest.raises(ConfigError, match="partition the graph's own store"):
        check_joining(shards, "1MiB")
