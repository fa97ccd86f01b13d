"""Stores at addresses that fsspec knows: written, opened and read as those of this machine are."""

import uuid

import fsspec
import numpy as np
import pytest

import dorylus
from dorylus.errors import DataError
from dorylus.graph.store import is_store, open_vertices
from dorylus.partition import make_partitioning, open_shards, save_shards


@pytest.fixture
def graph():
    return dorylus.communities(num_vertices=120, num_classes=3, num_features=5, average_degree=4, seed=0)


@pytest.fixture
def address():
    address = f"memory://{uuid.uuid4().hex}/graph"
    yield address
    fsspec.filesystem("memory").store.clear()


def test_a_store_elsewhere_gives_the_graph_that_was_saved(graph, address):
    assert not is_store(address)
    graph.save(address)
    assert is_store(address)
    found = dorylus.load(address)
    for name in ("indptr", "indices", "features", "labels", "train_mask"):
        np.testing.assert_array_equal(getattr(found, name), getattr(graph, name))
    assert found.store == address
    rows = np.array([100, 3])
    np.testing.assert_array_equal(open_vertices(address).features[rows], graph.features[rows])


def test_shards_elsewhere_are_those_that_were_saved(graph, address, tmp_path):
    parts = make_partitioning(graph, 2, "stream")
    for place in (address, tmp_path / "shards"):
        save_shards(place, graph, parts)
    far, near = open_shards(address), open_shards(tmp_path / "shards", verify=True)
    np.testing.assert_array_equal(far.parts, near.parts)
    for server in range(2):
        np.testing.assert_array_equal(far.shard(server).in_ghosts, near.shard(server).in_ghosts)
        np.testing.assert_array_equal(far.shard(server).edges[1], near.shard(server).edges[1])


def test_a_store_elsewhere_is_replaced_only_when_told_to(graph, address):
    graph.save(address)
    with pytest.raises(DataError, match="exists already"):
        graph.save(address)
    graph.save(address, overwrite=True)
    assert dorylus.load(address).num_edges == graph.num_edges


def test_a_store_that_was_not_written_to_its_end_is_none(graph, address):
    graph.save(address)
    system, root = fsspec.core.url_to_fs(address)
    system.rm_file(f"{root}/manifest.json")  # the last file that is written
    with pytest.raises(DataError, match=r"is not a store: cannot read its manifest.json"):
        dorylus.load(address)


def test_a_file_missing_elsewhere_is_named(graph, address):
    graph.save(address)
    system, root = fsspec.core.url_to_fs(address)
    system.rm_file(f"{root}/indices.bin")
    with pytest.raises(DataError, match=r"indices.bin is missing"):
        dorylus.load(address)


@pytest.mark.parametrize("address", ["nowhere://bucket/graph", "s3://bucket/graph"])
def test_an_address_nobody_knows_or_whose_package_is_missing_says_what_to_install(address):
    with pytest.raises(DataError, match=r"cannot be reached: .*nstall"):
        dorylus.load(address)
