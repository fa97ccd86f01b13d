"""SIGTERM and SIGHUP, as Kubernetes, Slurm, spot machines and closing terminals send them, to real processes."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import dorylus
from dorylus.runs import checkpoint

SMALL = "communities:num_vertices=600"
# As wide as the runs of function_runs.py, so that it uses the same exported programs.
ON_FUNCTIONS = ["communities:num_vertices=300,num_classes=3,num_features=12", "--hidden", "8", "--rematerialize"]
SHOW_CURSOR, HIDE_CURSOR = b"\x1b[?25h", b"\x1b[?25l"
ENDLESS = ["--epochs", "100000", "--threads", "1", "--eval-every", "0", "--checkpoint-every", "0"]


def default_signals():
    """Restores handlers: a background job may ignore signals, and children inherit that."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def start(tmp_path):
    """Starts commands in an empty folder, with a temporary folder of their own; what is left of them is killed."""
    started = []

    def run(*arguments, **pipes):
        (tmp_path / "tmp").mkdir(exist_ok=True)
        environment = os.environ | {"TMPDIR": str(tmp_path / "tmp"), "OMP_NUM_THREADS": "1"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | pipes
        command = [sys.executable, *map(str, arguments)]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, preexec_fn=default_signals, **pipes)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def train(*arguments):
    return ["-m", "dorylus.cli", "train", *arguments, "--run-dir", "run"]


def wait_for(condition, deadline_s=100.0):
    end = time.monotonic() + deadline_s
    while not (found := condition()):
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.02)
    return found


def epochs_of(run_dir):
    log = run_dir / "log.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("}")]
    return [record["epoch"] for record in records if record["kind"] == "epoch"]


def ended(process, *numbers, timeout_s=60.0):
    """Sends signals, far enough apart to be two requests; the exit code and what was printed to stderr."""
    for count, number in enumerate(numbers):
        time.sleep(1 if count else 0)
        process.send_signal(number)
    _, err = process.communicate(timeout=timeout_s)
    return process.returncode, err.decode()


def children_of(pid):
    """The child processes of a process, by pid."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(status.parent.name))
        except (OSError, ValueError):
            pass
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_sigterm_finishes_the_epoch_saves_and_the_run_goes_on_from_there(start, tmp_path):
    process = start(*train(SMALL, *ENDLESS))
    wait_for(lambda: len(epochs_of(tmp_path / "run")) >= 15)
    assert ended(process, signal.SIGTERM) == (143, "stopped by SIGTERM; continue with: dorylus resume run\n")
    done = epochs_of(tmp_path / "run")[-1]
    assert checkpoint.epoch_of(checkpoint.latest(tmp_path / "run" / "checkpoints")) == done
    with dorylus.Trainer.resume(tmp_path / "run") as again:
        assert again.epoch == done >= 15


PYTHON = """
import sys, time
import dorylus
from dorylus.pools import ThreadsPool

class Stalling(ThreadsPool):
    calls = 0
    def submit(self, call, done, failed):
        if call.task.epoch == 2 and call.task.kind.name == "LOSS":
            print("stalled", flush=True)
            return  # an answer that never comes
        super().submit(call, done, failed)

graph = dorylus.communities(num_vertices=300, num_classes=3, seed=0)
try:
    dorylus.train(graph, dorylus.gcn(), epochs=10, threads=1, pool=Stalling(), run_dir="run", checkpoint_every=0,
                  grace_s=2)
except SystemExit as end:
    print(type(end).__name__, end.code, end.signal.name, flush=True)
    raise
"""


def test_an_epoch_that_does_not_end_in_time_is_dropped_and_those_before_are_saved(start, tmp_path):
    process = start("-c", PYTHON)
    assert process.stdout.readline() == b"stalled\n"
    began_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - began_s < 15
    assert (process.returncode, out, err) == (143, b"Terminated 143 SIGTERM\n", b"")
    assert checkpoint.epoch_of(checkpoint.latest(tmp_path / "run" / "checkpoints")) == 2
    graph = dorylus.communities(num_vertices=300, num_classes=3, seed=0)
    cut = dorylus.resume(tmp_path / "run", graph, dorylus.gcn(), threads=1)
    whole = dorylus.train(graph, dorylus.gcn(), epochs=10, threads=1)
    assert cut.losses == whole.losses


def test_processes_of_a_pool_end_with_the_run(start, tmp_path):
    process = start(*train(*ON_FUNCTIONS, *ENDLESS, "--pool", "processes", "--functions", "1", "--intervals", "1"))
    wait_for(lambda: len(epochs_of(tmp_path / "run")) >= 2)
    workers = children_of(process.pid)
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGTERM)  # as Slurm and systemd do, to every process of a job
    assert ended(process, signal.SIGTERM)[0] == 143
    wait_for(lambda: not any(map(is_alive, workers)), 10)
    left = [path.name for path in (tmp_path / "tmp").iterdir()]
    assert [name for name in left if not name.startswith("torchinductor_")] == []  # torch's own, made by an export
    assert checkpoint.latest(tmp_path / "run" / "checkpoints") is not None


@pytest.fixture
def terminal():
    """Both ends of a terminal: ours, and that of a process."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    for end in (ours, theirs):
        with suppress(OSError):
            os.close(end)


def output_until(condition, terminal, deadline_s=100.0):
    """The output on a terminal until a condition holds."""
    end_s, found = time.monotonic() + deadline_s, b""
    while not condition():
        assert time.monotonic() < end_s, "the condition was not met in time"
        if select.select([terminal], [], [], 0.05)[0]:
            with suppress(OSError):  # no process has it open any more
                found += os.read(terminal, 65536)
    return found


def test_a_second_signal_does_not_wait_and_the_terminal_has_its_cursor_back(start, tmp_path, terminal):
    ours, theirs = terminal
    mark = "open('marked', 'w').write('');"
    script = PYTHON.replace("grace_s=2", "grace_s=500, sinks=[TerminalProgress()]").replace("print(", f"{mark} str(")
    script = "from dorylus.report.terminal import TerminalProgress\n" + script.replace(", flush=True)", ")")
    process = start("-c", script.replace("str(type(end).__name__, end.code, end.signal.name)", ""), **io_of(theirs))
    os.close(theirs)
    output = output_until((tmp_path / "marked").exists, ours)
    process.send_signal(signal.SIGTERM)
    soon_s = time.monotonic() + 1
    output += output_until(lambda: time.monotonic() > soon_s, ours)
    process.send_signal(signal.SIGTERM)
    output += output_until(lambda: process.poll() is not None, ours, 20)
    output += output_until(lambda: not select.select([ours], [], [], 0.1)[0] or not os.read(ours, 0), ours)
    assert process.returncode == 143
    assert checkpoint.latest(tmp_path / "run" / "checkpoints") is None
    assert HIDE_CURSOR in output
    assert output.rindex(SHOW_CURSOR) > output.rindex(HIDE_CURSOR)


def io_of(terminal):
    return {"stdin": terminal, "stdout": terminal, "stderr": terminal}


def test_a_closed_terminal_does_not_keep_a_run_from_being_saved(start, tmp_path, terminal):
    ours, theirs = terminal
    process = start(*train(SMALL, *ENDLESS), **io_of(theirs))
    os.close(theirs)
    output_until(lambda: len(epochs_of(tmp_path / "run")) >= 5, ours)
    os.close(ours)
    for _ in range(2):  # from the shell and from the kernel: one request
        process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 129
    assert checkpoint.epoch_of(checkpoint.latest(tmp_path / "run" / "checkpoints")) >= 5


def test_a_signal_while_a_store_is_written_leaves_nothing(start, tmp_path):
    np.save(tmp_path / "edges.npy", np.random.default_rng(0).integers(0, 1 << 20, (4_000_000, 2)))
    process = start("-m", "dorylus.cli", "ingest", "edges.npy", "store")
    names = {"tmp", "edges.npy"}
    wait_for(lambda: {path.name for path in tmp_path.iterdir()} - names)
    assert ended(process, signal.SIGTERM) == (143, "stopped by SIGTERM: nothing was written\n")
    assert {path.name for path in tmp_path.iterdir()} == names
    assert list((tmp_path / "tmp").iterdir()) == []
