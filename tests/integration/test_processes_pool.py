"""Runs with dense tasks in other processes: by both data paths, and when a process dies."""

import os
import signal
import subprocess
import sys
import threading
import time
from itertools import count

import pytest
from function_runs import TOLERANCE, losses_here, losses_on

from dorylus.functions.program_cache import ProgramCache
from dorylus.pools.functions.functions_pool import functions_pool
from dorylus.pools.functions.invocations import FunctionsConfig
from dorylus.pools.functions.unfused import Unfused
from dorylus.pools.pool import Lost, Throttled, Unavailable
from dorylus.pools.processes import ProcessesInvoker
from dorylus.pools.relaunch import Relaunching
from dorylus.wire.frames import pack, unpack

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def programs():
    """Exports take seconds: all tests of the session share them."""
    return ProgramCache()


@pytest.fixture
def make_pool(programs):
    """Makes pools of two processes; the trainer of a run closes its pool."""

    def make(note=lambda what, **details: None, **settings):
        return functions_pool(ProcessesInvoker(2), FunctionsConfig(**settings), cache=programs, note=note)

    return make


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("gcn", "inline"),
        ("gcn", "direct"),
        ("gat", "direct"),
        ("a user's edge layer", "direct"),
        pytest.param("gat", "inline", marks=pytest.mark.soak),
        pytest.param("a user's edge layer", "inline", marks=pytest.mark.soak),
    ],
)
def test_a_run_gives_the_losses_of_threads(make_pool, path, name):
    pool = make_pool(data_path=path, part_rows=40)
    assert losses_on(pool, name) == pytest.approx(losses_here(name), abs=TOLERANCE)
    assert sum(usage.duplicates for usage in pool.usage().values()) == 0


def test_auto_takes_the_direct_path_and_notes_it(make_pool):
    notes = []
    pool = make_pool(note=lambda what, **details: notes.append((what, details)))
    assert losses_on(pool, "gcn") == pytest.approx(losses_here("gcn"), abs=TOLERANCE)
    assert notes[0] == ("data_path", {"path": "direct", "why": "a function reached our data ports"})
    assert {what for what, _ in notes[1:]} == {"program"}


@pytest.mark.parametrize("settings", [{"stream": False}, {"part_rows": None}, {"part_rows": 7}])
def test_how_rows_are_cut_and_when_they_are_fetched_changes_nothing(make_pool, settings):
    pool = make_pool(data_path="direct", **settings)
    assert losses_on(pool, "gcn") == pytest.approx(losses_here("gcn"), abs=TOLERANCE)


@pytest.mark.parametrize("path", ["inline", "direct"])
def test_unfused_tasks_give_the_same(make_pool, path):
    pool = make_pool(data_path=path)
    assert losses_on(Unfused(pool), "gcn") == pytest.approx(losses_here("gcn"), abs=TOLERANCE)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_narrow_payloads_train_to_nearly_the_same_losses(make_pool, precision):
    losses = losses_on(make_pool(precision=precision), "gcn")
    assert losses == pytest.approx(losses_here("gcn"), abs=0.02)
    assert losses != pytest.approx(losses_here("gcn"), abs=1e-7)


class Listening(ProcessesInvoker):
    """Records the public keys of invocations."""

    def __init__(self, num_workers):
        super().__init__(num_workers)
        self.keys = set()

    def invoke(self, request, timeout_s):
        self.keys.add(unpack(request).header["keys"]["public"])
        return super().invoke(request, timeout_s)


def test_keys_that_end_during_a_run_are_renewed(programs):
    invoker = Listening(2)
    settings = FunctionsConfig(data_path="direct", key_lifetime_s=0.4)
    pool = Relaunching(functions_pool(invoker, settings, cache=programs))
    assert losses_on(pool, "gcn", epochs=40)[:3] == pytest.approx(losses_here("gcn"), abs=TOLERANCE)
    assert len(invoker.keys) > 1


class KillingInvoker(ProcessesInvoker):
    """Kills one of its processes at every ninth invocation."""

    kills = 0

    def __init__(self, num_workers):
        super().__init__(num_workers)
        self._numbers = count(1)

    def invoke(self, request, timeout_s):
        if next(self._numbers) % 9 == 0:
            self.kills += 1
            for pid in self.pids[:1]:
                os.kill(pid, signal.SIGKILL)
        return super().invoke(request, timeout_s)


@pytest.mark.parametrize("path", ["inline", "direct"])
def test_a_run_goes_on_when_processes_are_killed(programs, path):
    invoker = KillingInvoker(2)
    pool = Relaunching(functions_pool(invoker, FunctionsConfig(data_path=path), cache=programs))
    assert losses_on(pool, "gcn") == pytest.approx(losses_here("gcn"), abs=TOLERANCE)
    assert 0 < pool.counts.losses <= invoker.kills


def test_a_process_that_cannot_start_makes_the_service_unavailable(invoker, monkeypatch, capfd):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(Unavailable, match=r"did not start \(exit code 1\)"):
        invoker.invoke(HELLO, DEADLINE_S)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


def wait_until(holds):
    until_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.01)


@pytest.fixture
def invoker():
    made = ProcessesInvoker(1)
    yield made
    made.close()


HELLO = b"".join(pack({"task": "t", "program": "unknown"}, {}))


def stop_in_its_task(invoker):
    """Stops the process, so that the next task never ends; returns its id."""
    invoker.invoke(HELLO, DEADLINE_S)
    (pid,) = invoker.pids
    os.kill(pid, signal.SIGSTOP)
    return pid


def lose(invoker, timeout_s):
    with pytest.raises(Lost) as caught:
        invoker.invoke(HELLO, timeout_s)
    return caught.value


def test_a_process_killed_in_its_task_is_lost_and_replaced(invoker):
    pid = stop_in_its_task(invoker)
    killer = threading.Timer(0.1, os.kill, (pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(Lost, match=f"process {pid} died on its task with exit code -9"):
        invoker.invoke(HELLO, DEADLINE_S)
    killer.join()
    assert unpack(invoker.invoke(HELLO, DEADLINE_S).content).header["missing"] == "unknown"
    assert invoker.pids != [pid]


def test_a_process_that_does_not_answer_is_killed_when_its_time_is_up(invoker):
    pid = stop_in_its_task(invoker)
    with pytest.raises(Lost, match=f"process {pid} was killed: no answer within 0.2 s"):
        invoker.invoke(HELLO, 0.2)
    assert not is_alive(pid)


def test_a_call_that_finds_all_processes_busy_until_its_time_limit_is_throttled(invoker):
    stop_in_its_task(invoker)
    busy = threading.Thread(target=lose, args=(invoker, 1.0))
    busy.start()
    wait_until(lambda: not invoker._idle)
    with pytest.raises(Throttled):
        invoker.invoke(HELLO, 0.1)
    busy.join()


def test_closing_ends_all_processes_and_the_calls_that_wait_for_them(invoker):
    pid, lost = stop_in_its_task(invoker), []
    busy = threading.Thread(target=lambda: lost.append(lose(invoker, DEADLINE_S)))
    busy.start()
    wait_until(lambda: not invoker._idle)
    invoker.close()
    busy.join(DEADLINE_S)
    assert len(lost) == 1
    assert not is_alive(pid)


def test_processes_do_not_outlive_the_process_that_started_them():
    program = (
        "import os, sys\n"
        "from dorylus.pools.processes import ProcessesInvoker\n"
        "invoker = ProcessesInvoker(1)\n"
        f"invoker.invoke({HELLO!r}, 30)\n"
        "print(*invoker.pids, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=2 * DEADLINE_S)
    assert done.returncode == -9, done.stderr
    pid = int(done.stdout)
    wait_until(lambda: not is_alive(pid))
    assert not is_alive(pid)
