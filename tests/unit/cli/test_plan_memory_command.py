import re
from collections import namedtuple

import pytest

from dorylus import process_memory
from dorylus.memory import scratch
from dorylus.runs import read_log

GRAPH = "communities:num_vertices=4000,num_features=64"
COMMAND = ("plan-memory", GRAPH, "--hidden", "64", "--threads", "1")


@pytest.fixture(autouse=True)
def bare_process(monkeypatch):
    """A process whose own memory is not counted."""
    for name in ("memory.limit.SLACK", "memory.limit.LEAST_MARGIN", "training.assembly.TO_LOAD"):
        monkeypatch.setattr(f"dorylus.{name}", 0)
    monkeypatch.setattr("dorylus.memory.model_pass.ARENA", 0)
    monkeypatch.setattr(process_memory, "private_bytes", lambda: 0)


def test_memory_of_a_run_that_fits_is_reported_by_kind(dorylus_program):
    code, out, _ = dorylus_program(*COMMAND, "--memory", "1GiB")
    assert code == 0
    assert "fits: limit 1" in out
    for kind in ("the process as it is", "activations", "edges", "vertices", "together"):
        assert kind in out


def test_without_a_limit_the_machine_is_the_limit(dorylus_program, monkeypatch):
    monkeypatch.setattr(process_memory, "available_bytes", lambda: 1 << 30)
    code, out, _ = dorylus_program(*COMMAND)
    assert code == 0
    assert "fits: limit 1" in out


def test_a_run_that_needs_files_fits_with_spilling(dorylus_program):
    code, out, _ = dorylus_program(*COMMAND, "--memory", "4MiB")
    assert code == 0
    assert "fits with spilling: limit 4" in out
    assert re.search(r"each epoch reads [1-9].* of files and writes ", out)


def test_a_run_that_does_not_fit_ends_with_one_and_the_cure(dorylus_program, tmp_path):
    code, out, _ = dorylus_program(*COMMAND, "--memory", "1MiB")
    assert code == 1
    assert "does not fit: limit 1" in out
    (named,) = re.findall(r"Give --memory (\d+MiB)", out.replace("\n", " "))
    code, out, _ = dorylus_program(*COMMAND, "--memory", named)
    assert code == 0
    assert not list(tmp_path.iterdir())


def test_the_disk_is_reported_where_files_are_needed(dorylus_program, tmp_path):
    code, out, _ = dorylus_program(*COMMAND, "--memory", "4MiB", "--scratch-dir", tmp_path)
    assert code == 0
    assert re.search(rf"scratch: \d.* in {tmp_path}, where .* are free\n", out)
    _, out, _ = dorylus_program(*COMMAND, "--memory", "1GiB")
    assert "scratch" not in out


def test_a_disk_that_is_too_small_is_reported_and_does_not_fit(dorylus_program, tmp_path, monkeypatch):
    usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda folder: usage(100, 90, 10))
    code, out, _ = dorylus_program(*COMMAND, "--memory", "4MiB", "--scratch-dir", tmp_path)
    assert code == 1
    assert "where 10 bytes are free (too little)" in out
    assert "does not fit: limit 4" in out
    assert "make room there, or name another folder as --scratch-dir." in out


def test_a_missing_scratch_folder_is_reported(dorylus_program, tmp_path):
    code, out, _ = dorylus_program(*COMMAND, "--memory", "4MiB", "--scratch-dir", tmp_path / "nowhere")
    assert code == 1
    assert "which is not there" in out
    assert "is no folder: make it, or name another." in out


def test_a_new_run_that_needs_files_is_trained(dorylus_program, tmp_path):
    code, out, _ = dorylus_program("train", *COMMAND[1:], "--memory", "4MiB", "--epochs", "2")
    assert code == 0
    assert re.search(r"files per epoch.* read, .* written \(predicted .* and .*\)", out)
    (log,) = tmp_path.glob("runs/*/log.jsonl")
    files = [record["files"] for record in read_log(log) if record["kind"] == "epoch"]
    assert len(files) == 2
    assert all(each["read_bytes"] > 0 and each["written_bytes"] > 0 for each in files)


def test_an_invalid_amount_is_refused(dorylus_program):
    code, _, err = dorylus_program(*COMMAND, "--memory", "much")
    assert code == 2
    assert "memory" in err
