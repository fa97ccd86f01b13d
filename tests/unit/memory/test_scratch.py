import os
import shutil
import tempfile
from pathlib import Path

import pytest

import dorylus
import dorylus.graph.locations as locations
from dorylus.errors import ConfigError, spelled
from dorylus.graph.locations import file_system_in_memory
from dorylus.memory import scratch
from dorylus.memory.scratch import Scratch, scratch_folder
from dorylus.partition import make_partitioning


@pytest.fixture
def tmpfs():
    """A folder that is memory."""
    if not os.access("/dev/shm", os.W_OK) or file_system_in_memory("/dev/shm") != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs here")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="dorylus-test-") as folder:
        yield Path(folder)


def test_enough_disk_space_is_accepted(tmp_path):
    found = Scratch.of(str(tmp_path), 1000, named=True)
    assert (found.folder, found.needed, found.problem) == (str(tmp_path), 1000, "")
    assert abs(found.free - shutil.disk_usage(tmp_path).free) < 2**30


def test_too_little_disk_space_is_reported_with_the_need_and_the_free_space():
    assert spelled(Scratch("/disk", 3 << 30, 1 << 30).problem) == (
        "the run needs 3.0 GiB of scratch in /disk, which has 1.0 GiB free: make room there, or name another folder as "
        "scratch_dir."
    )


def test_a_folder_given_by_name_has_to_exist(tmp_path):
    found = Scratch.of(str(tmp_path / "nowhere"), 1, named=True)
    assert found.free is None
    assert "is no folder: make it, or name another" in found.problem


def test_a_folder_that_the_run_creates_need_not_exist(tmp_path):
    found = Scratch.of(str(tmp_path / "runs" / "of today"), 1, named=False)
    assert found.free == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)
    assert found.problem == ""
    assert not list(tmp_path.iterdir())


def in_memory_there(*folders):
    """Lets file systems under these folders be in memory."""

    def kind(path, root=None):
        return "tmpfs" if any(Path(path).is_relative_to(each) for each in folders) else None

    return kind


def test_a_folder_that_is_memory_is_refused_by_name_with_one_that_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "file_system_in_memory", in_memory_there(tmp_path))
    monkeypatch.setattr(locations, "file_system_in_memory", in_memory_there(tmp_path, tempfile.gettempdir()))
    found = Scratch.of(str(tmp_path), 1000, named=True)
    assert spelled(found.problem) == (
        f"scratch_dir='{tmp_path}' is on tmpfs, which is memory: files written there count against the limit as "
        "much as the arrays that they replace. Name a folder on a disk, /var/tmp for one, as scratch_dir."
    )
    assert Scratch.of(str(tmp_path), 0, named=True).problem == ""


def test_a_default_scratch_folder_is_not_in_memory(tmp_path, monkeypatch):
    dorylus.communities(num_vertices=500, num_classes=2).save(tmp_path / "disk" / "graph")
    graph = dorylus.Graph.open(tmp_path / "disk" / "graph")
    run_dir = str(tmp_path / "memory" / "run")
    assert scratch_folder(graph, None, run_dir) == str(tmp_path / "memory")
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(locations, "file_system_in_memory", in_memory_there(tmp_path / "memory"))
    assert scratch_folder(graph, None, run_dir) == str(tmp_path / "disk")
    everywhere = in_memory_there(tmp_path, tempfile.gettempdir())
    monkeypatch.setattr(locations, "file_system_in_memory", everywhere)
    assert scratch_folder(graph, None, run_dir) == "/var/tmp"
    assert scratch_folder(graph, "/dev/shm", run_dir) == "/dev/shm"


@pytest.mark.usefixtures("nothing_fits")
def test_a_run_that_would_spill_into_memory_is_refused_before_any_work(tmp_path, tmpfs):
    graph = dorylus.communities(num_vertices=500, num_classes=2)
    with pytest.raises(ConfigError, match=r"is on tmpfs, which is memory: .* Name a folder on a disk, \S+ for one,"):
        dorylus.train(
            graph, dorylus.gcn(hidden=4), memory="256MiB", scratch_dir=str(tmpfs), run_dir=str(tmp_path / "run")
        )
    assert not (tmp_path / "run").exists()


def test_shards_are_not_written_through_scratch_in_memory(tmpfs):
    graph = dorylus.communities(num_vertices=500, num_classes=2)
    with pytest.raises(ConfigError, match="is on tmpfs, which is memory"):
        make_partitioning(graph, 2, "stream", memory="1GiB", scratch_dir=tmpfs)


@pytest.mark.usefixtures("nothing_fits")
def test_a_store_that_lies_in_memory_is_counted(tmpfs, tmp_path):
    graph = dorylus.communities(num_vertices=3000, num_classes=4)
    plans = {}
    for place in (tmpfs / "graph", tmp_path / "graph"):
        graph.save(place)
        opened = dorylus.Graph.open(place)
        plans[place.parent] = dorylus.plan_memory(opened, dorylus.gcn(hidden=4), memory="256MiB", threads=1)
        total = sum(file.stat().st_size for file in place.glob("*.bin"))
    counted = plans[tmpfs].reported.figures.resident["the store, which lies in memory"]
    assert counted == total
    assert plans[tmpfs].peak - plans[tmp_path].peak == pytest.approx(total, abs=1 << 20)
    assert "the store, which lies in memory" not in plans[tmp_path].reported.figures.resident
    assert not Path(plans[tmpfs].scratch.folder).is_relative_to(tmpfs)
