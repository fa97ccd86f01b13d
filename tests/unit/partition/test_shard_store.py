import errno
import fcntl
import json
import threading
import uuid

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import graphs, random_parts

import dorylus
import dorylus.graph.array_folder as array_folder
from dorylus.errors import DataError
from dorylus.partition import Partitioning, make_partitioning, make_shard, open_shards, save_shards, shard_store
from dorylus.partition.shard_store import save_shards_once

SOON_S = 30.0
ARRAYS = ("ids", "in_ghosts", "out_ghosts", "in_owners", "out_owners")


def parted(graph: dorylus.Graph, servers: int, seed: int = 0) -> Partitioning:
    parts = random_parts(np.random.default_rng(seed), graph.num_vertices, servers)
    return Partitioning(parts, servers, "by chance")


def some_graph(**changes) -> dorylus.Graph:
    rng = np.random.default_rng(0)
    source, destination = np.nonzero(np.triu(rng.random((20, 20)) < 0.3))
    return dorylus.Graph.from_edges(source, destination, 20, **changes)


def assert_same(a, b) -> None:
    assert (a.server, a.num_servers, a.num_vertices, a.directed) == (
        b.server,
        b.num_servers,
        b.num_vertices,
        b.directed,
    )
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for left, right in ((a.degrees, b.degrees), (a.out_degrees, b.out_degrees)):
        for name in ("counts", "weights", "loops"):
            np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
    assert (a.out is None) == (b.out is None)
    for left, right in ((a.edges, b.edges), (a.out or (), b.out or ())):
        for mine, theirs in zip(left, right, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@settings(max_examples=15)  # every file is flushed to disk
@given(graphs(weighted=True), st.integers(1, 7), st.integers(0, 2**32), st.booleans())
def test_shards_that_are_saved_come_back(tmp_path_factory, graph, servers, seed, verify):
    partitioning = parted(graph, min(servers, graph.num_vertices), seed)
    folder = tmp_path_factory.mktemp("store") / "shards"
    save_shards(folder, graph, partitioning)
    shards = open_shards(folder, verify=verify)
    assert (shards.num_servers, shards.method) == (partitioning.num_parts, "by chance")
    np.testing.assert_array_equal(shards.parts, partitioning.parts)
    shards.check(graph)
    for server in range(shards.num_servers):
        assert_same(shards.shard(server), make_shard(graph, partitioning.parts, server))


def test_arrays_are_read_only_views_of_the_files(tmp_path):
    graph = some_graph()
    save_shards(tmp_path / "shards", graph, parted(graph, 2))
    shard = open_shards(tmp_path / "shards").shard(1)
    for array in (shard.ids, shard.edges[1]):
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable


@settings(max_examples=15)  # every file is flushed to disk
@given(graphs(weighted=True), st.integers(1, 7), st.integers(0, 2**32))
def test_the_graph_comes_back_from_its_shards_alone(tmp_path_factory, graph, servers, seed):
    folder = tmp_path_factory.mktemp("store") / "shards"
    save_shards(folder, graph, parted(graph, min(servers, graph.num_vertices), seed))
    found = open_shards(folder).graph()
    assert found.directed == graph.directed
    for name in ("indptr", "indices", "edge_weight"):
        np.testing.assert_array_equal(getattr(found, name), getattr(graph, name))


@pytest.mark.parametrize("directed", [False, True])
def test_shards_that_are_joined_and_partitioned_again_are_those_of_the_graph(tmp_path, directed):
    graph = some_graph(undirected=not directed)
    save_shards(tmp_path / "three", graph, make_partitioning(graph, 3, "hash"))
    joined = open_shards(tmp_path / "three").graph()
    save_shards(tmp_path / "five", joined, make_partitioning(joined, 5, "range"))
    expected, found = make_partitioning(graph, 5, "range"), open_shards(tmp_path / "five", verify=True)
    assert (found.num_servers, found.method) == (5, "range")
    np.testing.assert_array_equal(found.parts, expected.parts)
    found.check(graph)
    for server in range(5):
        assert_same(found.shard(server), make_shard(graph, expected.parts, server))


def test_shards_of_another_graph_are_refused(tmp_path):
    graph = some_graph()
    save_shards(tmp_path / "shards", graph, parted(graph, 2))
    shards = open_shards(tmp_path / "shards")
    with pytest.raises(
        DataError, match=r"of 20 vertices and [\d,]+ edges, but graph 'graph' has 8 vertices and 16 edges"
    ):
        shards.check(dorylus.Graph.from_edges(np.arange(8), (np.arange(8) + 1) % 8))
    source, destination = graph.edge_list()
    moved = dorylus.Graph.from_edges((source + 1) % 20, (destination + 1) % 20, 20)
    assert moved.num_edges == graph.num_edges
    with pytest.raises(DataError, match=r"but graph 'graph' has other edges: partition this graph"):
        shards.check(moved)


def test_other_weights_are_another_graph(tmp_path):
    graph = dorylus.Graph.from_edges([0, 1], [1, 2], edge_weight=[1.0, 2.0])
    save_shards(tmp_path / "shards", graph, parted(graph, 2))
    with pytest.raises(DataError, match="other edges"):
        open_shards(tmp_path / "shards").check(dorylus.Graph.from_edges([0, 1], [1, 2], edge_weight=[1.0, 3.0]))


def test_a_store_of_shards_is_replaced_only_with_overwrite(tmp_path):
    graph, path = some_graph(), tmp_path / "shards"
    save_shards(path, graph, parted(graph, 2))
    with pytest.raises(DataError, match=r"the store of shards .* exists already.*overwrite=True"):
        save_shards(path, graph, parted(graph, 3))
    assert open_shards(path).num_servers == 2
    save_shards(path, graph, parted(graph, 3), overwrite=True)
    assert open_shards(path).num_servers == 3
    assert [entry.name for entry in tmp_path.iterdir()] == ["shards"]


def test_a_graphs_store_is_never_replaced_by_shards(tmp_path):
    graph = some_graph()
    graph.save(tmp_path / "graph")
    with pytest.raises(DataError, match="exists and is not a store of shards"):
        save_shards(tmp_path / "graph", graph, parted(graph, 2), overwrite=True)
    with pytest.raises(DataError, match=r"is not a store of shards: cannot read its shards\.json"):
        open_shards(tmp_path / "graph")


def test_a_failure_while_writing_leaves_nothing_behind(tmp_path, monkeypatch):
    array = array_folder.NewFolder.array

    def full_disk(folder, name, *form):
        if name == "shard1.in_indices":
            raise OSError(28, "No space left on device")
        return array(folder, name, *form)

    monkeypatch.setattr(array_folder.NewFolder, "array", full_disk)
    graph = some_graph()
    with pytest.raises(DataError, match=r"could not write the store of shards .*No space left on device"):
        save_shards(tmp_path / "shards", graph, parted(graph, 2))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def saved(tmp_path):
    graph = some_graph()
    save_shards(tmp_path / "shards", graph, parted(graph, 3))
    return tmp_path / "shards"


def test_a_truncated_array_is_reported_in_one_sentence(saved):
    target = saved / "shard2.in_indices.bin"
    target.write_bytes(target.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"damaged: shard2\.in_indices\.bin has [\d,]+ bytes instead of"):
        open_shards(saved)


def test_a_flipped_bit_is_found_by_its_checksum(saved):
    target = saved / "shard0.in_indices.bin"
    raw = bytearray(target.read_bytes())
    raw[0] ^= 1
    target.write_bytes(raw)
    with pytest.raises(DataError, match=r"checksum of shard0\.in_indices differs"):
        open_shards(saved, verify=True)
    with pytest.raises(DataError, match="is damaged"):
        open_shards(saved).graph()


def rewrite(folder, **changes) -> None:
    manifest = json.loads((folder / "shards.json").read_text())
    (folder / "shards.json").write_text(json.dumps(manifest | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "photos"}, "does not say format 'dorylus-shards'"),
        ({"version": 2}, "has version 2, but this Dorylus reads version 1"),
        ({"num_servers": 2}, "parts do not give 20 vertices to 2 servers"),
        ({"num_vertices": 19}, "parts do not give 19 vertices to 3 servers"),
        ({"num_edges": "many"}, r"""is damaged: shards\.json says num_edges = "many", which is not a whole number"""),
        ({"structure": -1}, r"says structure = -1, .*\. Partition the graph again"),
        ({"directed": 0}, "says directed = 0, which is not true or false"),
        ({"arrays": {}}, r"is damaged: shards\.json lists no array 'parts'"),
    ],
)
def test_an_invalid_manifest_is_reported_in_one_sentence(saved, changes, message):
    rewrite(saved, **changes)
    with pytest.raises(DataError, match=message):
        open_shards(saved)


def test_a_shard_that_lacks_an_array_is_damaged(saved):
    manifest = json.loads((saved / "shards.json").read_text())
    del manifest["arrays"]["shard1.in_loops"]
    (saved / "shards.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"damaged: shards\.json lists no array 'shard1\.in_loops'\. Partition"):
        open_shards(saved).shard(1)


def test_arrays_that_do_not_fit_together_are_damaged(saved):
    manifest = json.loads((saved / "shards.json").read_text())
    (saved / "shard1.in_loops.bin").write_bytes(b"\0" * 3)
    manifest["arrays"]["shard1.in_loops"].update({"shape": [3], "bytes": 3})
    (saved / "shards.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="have other sizes"):
        open_shards(saved).shard(1)


@pytest.fixture
def counted(monkeypatch):
    """The cuts whose shards were written, by their number of servers."""
    cuts, write = [], shard_store.write_shards

    def writing(folder, edges, parts, num_servers, tell):
        cuts.append(num_servers)
        write(folder, edges, parts, num_servers, tell)

    monkeypatch.setattr(shard_store, "write_shards", writing)
    return cuts


def during_the_write(monkeypatch, what):
    """Has something done once, by the first process that writes shards, before it gives them their place."""
    write, first = shard_store.write_shards, []

    def writing(*arguments):
        write(*arguments)
        if not first:
            first.append(True)
            what()

    monkeypatch.setattr(shard_store, "write_shards", writing)


def inodes(folder):
    return {each.name: each.stat().st_ino for each in folder.iterdir()}


def test_a_second_run_of_the_same_cut_waits_for_the_first_and_uses_its_shards(tmp_path, monkeypatch, counted):
    graph, path = some_graph(), tmp_path / "shards"
    waits, flock = threading.Event(), fcntl.flock
    second = threading.Thread(target=save_shards_once, args=(path, graph, parted(graph, 2)))

    def noting(descriptor, operation):
        if threading.current_thread() is second:
            waits.set()
        return flock(descriptor, operation)

    def start_the_second():
        second.start()
        assert waits.wait(SOON_S)

    monkeypatch.setattr(fcntl, "flock", noting)
    during_the_write(monkeypatch, start_the_second)
    save_shards_once(path, graph, parted(graph, 2))
    first = inodes(path)
    second.join(SOON_S)
    assert counted == [2]
    assert inodes(path) == first
    assert [each.name for each in tmp_path.iterdir()] == ["shards"]


def without_locks(monkeypatch):
    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.parametrize("place", ["a folder", "an address"])
def test_of_two_runs_that_cannot_see_each_other_the_shards_of_the_first_to_end_stay(
    tmp_path, monkeypatch, counted, place
):
    graph = some_graph()
    path = tmp_path / "shards" if place == "a folder" else f"memory://{uuid.uuid4().hex}/shards"
    without_locks(monkeypatch)
    found = []

    def the_second():
        save_shards_once(path, graph, parted(graph, 2))
        found.append(open_shards(path))

    during_the_write(monkeypatch, the_second)
    save_shards_once(path, graph, parted(graph, 2))
    assert counted == [2, 2]
    if place == "a folder":
        found[0].shard(1)  # refused where the files are not those that were opened
        assert [each.name for each in tmp_path.iterdir()] == ["shards"]
    open_shards(path, verify=True).check(graph)


def test_shards_that_appear_while_others_are_written_are_replaced_only_with_overwrite(tmp_path, monkeypatch):
    graph, path = some_graph(), tmp_path / "shards"
    during_the_write(monkeypatch, lambda: save_shards(path, graph, parted(graph, 3)))
    with pytest.raises(DataError, match=r"the store of shards .* exists already.*overwrite=True"):
        save_shards(path, graph, parted(graph, 2))
    assert open_shards(path).num_servers == 3
    assert [each.name for each in tmp_path.iterdir()] == ["shards"]


def test_a_failure_of_the_only_writer_is_reported(tmp_path, monkeypatch):
    def full_disk(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shard_store, "write_shards", full_disk)
    graph = some_graph()
    with pytest.raises(DataError, match=r"could not write the store of shards .*No space left on device"):
        save_shards_once(tmp_path / "shards", graph, parted(graph, 2))
    assert list(tmp_path.iterdir()) == []
