"""SIGTERM and SIGKILL to runs with dense tasks or servers in other processes: no process is left."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ray_bench.isolated import run_isolated, why_not

SMALL = ["communities:num_vertices=600", "--epochs", "100000", "--threads", "1", "--eval-every", "0"]


@pytest.fixture
def run(tmp_path):
    """A run on Lambda's stand-in after its first epochs, with a temporary folder of its own, and its processes."""
    (tmp_path / "tmp").mkdir()
    words = ["train", *SMALL, "--pool", "lambda-local", "--functions", "2", "--intervals", "2", "--run-dir", "run"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dorylus.cli", *words],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    wait_for(lambda: num_epochs(tmp_path / "run" / "log.jsonl") >= 2)
    yield process, below(process.pid)
    process.kill()
    process.communicate()


def wait_for(condition, deadline_s=120.0):
    end_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end_s, "the condition was not met in time"
        time.sleep(0.05)


def num_epochs(log):
    lines = log.read_text().splitlines() if log.exists() else []
    return sum(json.loads(line)["kind"] == "epoch" for line in lines if line.endswith("}"))


def below(pid):
    """The descendants of a process."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid:
            found += [int(status.parent.name), *below(int(status.parent.name))]
    return found


def alive(pids):
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)])
def test_the_stand_in_of_lambda_and_its_folder_are_gone(run, tmp_path, number, code):
    process, started = run
    assert started
    process.send_signal(number)
    assert process.wait(60) == code
    wait_for(lambda: not alive(started), 20)
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
def test_a_driver_on_a_ray_cluster_saves_ends_its_servers_and_prints_no_stack():
    with tempfile.TemporaryDirectory(prefix="rays-") as folder:  # a short name: Ray puts sockets in it
        got = run_isolated("ray_bench.stopped", folder, timeout_s=200)
    assert got["code"] == 143
    assert "stopped by SIGTERM; continue with: dorylus resume" in got["err"]
    assert "Stack" not in got["err"]
    assert "***" not in got["err"]
    assert got["left"] == 0
    (saved,) = got["saved"]
    assert int(saved.removeprefix("epoch-")) >= 8
