"""Stores at addresses that fsspec knows: written, opened and read as those of this machine are."""

import os
import uuid
from pathlib import Path

import fsspec
import numpy as np
import pytest

import dorylus
import dorylus.graph.locations as locations
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


def test_a_remote_store_returns_the_graph_that_was_saved(graph, address):
    assert not is_store(address)
    graph.save(address)
    assert is_store(address)
    found = dorylus.load(address)
    for name in ("indptr", "indices", "features", "labels", "train_mask"):
        np.testing.assert_array_equal(getattr(found, name), getattr(graph, name))
    assert found.store == address
    rows = np.array([100, 3])
    np.testing.assert_array_equal(open_vertices(address).features[rows], graph.features[rows])


def test_remote_shards_equal_the_saved_ones(graph, address, tmp_path):
    parts = make_partitioning(graph, 2, "stream")
    for place in (address, tmp_path / "shards"):
        save_shards(place, graph, parts)
    far, near = open_shards(address), open_shards(tmp_path / "shards", verify=True)
    np.testing.assert_array_equal(far.parts, near.parts)
    for server in range(2):
        np.testing.assert_array_equal(far.shard(server).in_ghosts, near.shard(server).in_ghosts)
        np.testing.assert_array_equal(far.shard(server).edges[1], near.shard(server).edges[1])


def test_a_remote_store_is_replaced_only_with_overwrite(graph, address):
    graph.save(address)
    with pytest.raises(DataError, match="exists already"):
        graph.save(address)
    graph.save(address, overwrite=True)
    assert dorylus.load(address).num_edges == graph.num_edges


def test_an_incomplete_remote_store_is_refused(graph, address):
    graph.save(address)
    system, root = fsspec.core.url_to_fs(address)
    system.rm_file(f"{root}/manifest.json")  # the last file that is written
    with pytest.raises(DataError, match=r"is not a store: cannot read its manifest.json"):
        dorylus.load(address)


def test_a_missing_remote_file_is_named(graph, address):
    graph.save(address)
    system, root = fsspec.core.url_to_fs(address)
    system.rm_file(f"{root}/indices.bin")
    with pytest.raises(DataError, match=r"indices.bin is missing"):
        dorylus.load(address)


@pytest.mark.parametrize("address", ["nowhere://bucket/graph", "s3://bucket/graph"])
def test_an_unreachable_address_is_refused_with_what_to_install(address):
    with pytest.raises(DataError, match=r"cannot be reached: .*nstall"):
        dorylus.load(address)


def test_a_file_system_in_memory_is_known_by_its_kind(tmp_path):
    kinds = {line.split()[1]: line.split()[2] for line in Path("/proc/mounts").read_text().splitlines()}
    if kinds.get("/dev/shm") != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs here")
    assert locations.file_system_in_memory("/dev/shm") == "tmpfs"
    assert locations.file_system_in_memory("/dev/shm/not/there/yet") == "tmpfs"


@pytest.mark.parametrize(
    ("kind", "expected"), [(0xEF53, None), (0x01021994, "tmpfs"), (0x858458F6, "ramfs"), (0x6969, None), (0, None)]
)
def test_the_kind_decides_where_the_device_is_unknown(kind, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(locations, "_statfs", lambda path: kind)
    assert locations.file_system_in_memory(tmp_path, root=tmp_path / "nothing") == expected


def test_an_overlay_has_the_kind_of_its_upper_folder(tmp_path, monkeypatch):
    upper, device = tmp_path / "upper", tmp_path.stat().st_dev
    upper.mkdir()
    (tmp_path / "proc/self").mkdir(parents=True)
    number = f"{os.major(device)}:{os.minor(device)}"
    line = f"70 24 {number} / / rw,relatime - overlay overlay rw,lowerdir=/lower,upperdir={upper},workdir=/work"
    (tmp_path / "proc/self/mountinfo").write_text(f"24 1 0:1 / /proc rw - proc proc rw\n{line}\n")
    kinds = {tmp_path: locations.OVERLAY, upper: 0x01021994}
    monkeypatch.setattr(locations, "_statfs", kinds.__getitem__)
    assert locations.file_system_in_memory(tmp_path, root=tmp_path) == "tmpfs"
    kinds[upper] = 0xEF53
    assert locations.file_system_in_memory(tmp_path, root=tmp_path) is None
    (tmp_path / "proc/self/mountinfo").write_text("")
    assert locations.file_system_in_memory(tmp_path, root=tmp_path) is None


@pytest.mark.parametrize(("name", "expected"), [("zram0", "zram0"), ("ram3", "ram3"), ("sda1", None)])
def test_a_block_device_may_be_memory(name, expected, tmp_path, monkeypatch):
    device = tmp_path.stat().st_dev
    monkeypatch.setattr(locations, "_statfs", lambda path: 0xEF53)
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / name).mkdir()
    (tmp_path / "sys/dev/block" / f"{os.major(device)}:{os.minor(device)}").symlink_to(tmp_path / name)
    assert locations.file_system_in_memory(tmp_path, root=tmp_path) == expected


def test_a_loop_device_has_the_kind_of_the_disk_of_its_file(tmp_path, monkeypatch):
    device, disk = tmp_path.stat().st_dev, tmp_path / "held"
    disk.mkdir()
    (disk / "image").touch()
    loop = tmp_path / "sys/dev/block" / f"{os.major(device)}:{os.minor(device)}" / "loop"
    loop.mkdir(parents=True)
    (loop / "backing_file").write_text(f"{disk / 'image'}\n")
    monkeypatch.setattr(locations, "_statfs", lambda path: 0x01021994 if path == disk else 0xEF53)
    assert locations.file_system_in_memory(tmp_path, root=tmp_path) == "tmpfs"
