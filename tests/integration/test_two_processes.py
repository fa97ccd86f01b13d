"""A run folder belongs to one process at a time; another that would write to it is refused and changes nothing."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import dorylus
from dorylus.errors import ConfigError
from dorylus.inference.predictions import predict_from
from dorylus.runs import read_log


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "store"
    dorylus.communities(num_vertices=200, num_classes=3, seed=0).save(path)
    return path


def dorylus_command(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dorylus.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def contents(folder: Path) -> dict[str, bytes]:
    """The contents of a run folder, without the ledger, which changes all the time."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "used.ledger"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_resuming_a_run_that_another_process_trains_is_refused_and_leaves_it_alone(store: Path, tmp_path: Path) -> None:
    """Also in its first epochs, before any checkpoint, where resuming starts from epoch 0."""
    graph, run_dir = dorylus.Graph.open(store), tmp_path / "run"
    spec = dorylus.runs.run_folder.RunSpec({"source": str(store)}, {"name": "gcn", "hidden": 4})
    with dorylus.Trainer(graph, dorylus.gcn(hidden=4), epochs=6, run_dir=run_dir, spec=spec, threads=1) as trainer:
        trainer.run(3)
        half_written = run_dir / ".partial-0123456789abcdef-metrics.json"
        half_written.touch()  # as if the process that holds the folder were writing it
        before = contents(run_dir)
        done = dorylus_command("resume", run_dir)
        assert done.returncode == 2, done.stderr
        owner = f"process {os.getpid()} on {socket.gethostname()} has held it since"
        assert owner in " ".join(done.stderr.split())
        assert contents(run_dir) == before
        half_written.unlink()
        trainer.run().result()
    records = read_log(run_dir / "log.jsonl")
    assert [record["epoch"] for record in records if record["kind"] == "epoch"] == [1, 2, 3, 4, 5, 6]
    assert b"\0" not in (run_dir / "log.jsonl").read_bytes()


def test_of_many_processes_that_start_the_same_run_one_trains_and_the_others_are_refused(tmp_path: Path) -> None:
    graph = dorylus.communities(num_vertices=200, num_classes=3, seed=0)
    results, refused, together = [], [], threading.Barrier(4)

    def train() -> None:
        together.wait(30)
        try:
            with dorylus.Trainer(graph, dorylus.gcn(hidden=4), epochs=3, threads=1, run_dir=tmp_path / "run") as each:
                results.append(each.run().result())
        except ConfigError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(results), len(refused)) == (1, 3)
    assert all("is open in this process already" in each or "already holds a run" in each for each in refused)
    assert len([record for record in read_log(tmp_path / "run" / "log.jsonl") if record["kind"] == "run"]) == 1


def test_readers_need_no_lock(tmp_path: Path) -> None:
    graph, model = dorylus.communities(num_vertices=200, num_classes=3, seed=0), dorylus.gcn(hidden=4)
    settings = {"epochs": 4, "checkpoint_every": 2, "threads": 1, "run_dir": tmp_path / "run"}
    with dorylus.Trainer(graph, model, **settings) as trainer:
        trainer.run(2)
        classes = predict_from(tmp_path / "run", "classes", graph=graph, model=model)
        assert np.asarray(classes).shape == (200,)
        assert (tmp_path / "run" / "lock").exists()
    assert not (tmp_path / "run" / "lock").exists()


@pytest.mark.parametrize("damage", ["zero bytes", "torn", "both"])
def test_a_damaged_log_does_not_keep_a_run_from_going_on(tmp_path: Path, damage: str) -> None:
    graph, model = dorylus.communities(num_vertices=200, num_classes=3, seed=0), dorylus.gcn(hidden=4)
    whole = dorylus.train(graph, model, epochs=6, threads=1)
    settings = {"epochs": 6, "checkpoint_every": 2, "threads": 1, "run_dir": tmp_path / "run"}
    with dorylus.Trainer(graph, model, **settings) as trainer:
        trainer.run(3)
    log = tmp_path / "run" / "log.jsonl"
    first, *rest = log.read_bytes().splitlines(keepends=True)
    if damage != "torn":
        first += b"\0" * 5000
    log.write_bytes(first + (b'{"kind": "ep{"kind": "x"}\n' if damage != "zero bytes" else b"") + b"".join(rest))
    assert dorylus.resume(tmp_path / "run", graph, model).losses == whole.losses
