import threading
from dataclasses import replace

import pytest
from linear_functions import InProcess, Waiting, a_call, assert_same, program_of

from dorylus.errors import ConfigError
from dorylus.pools import POOLS, PoolListeners, PoolRequest, ThreadsPool, make_pool
from dorylus.pools.autotune import Autotuned
from dorylus.pools.functions.invocations import FunctionsConfig
from dorylus.pools.functions.unfused import Unfused
from dorylus.pools.limited import LimitedPool
from dorylus.pools.makers import pool_of_functions
from dorylus.saga import dense


class Silent:
    """An invoker that no call reaches."""

    payload_limit_bytes = 1 << 20

    def __init__(self):
        self.closed = False

    def invoke(self, request, timeout_s):
        raise AssertionError("nothing was submitted")

    def close(self):
        self.closed = True


OF_FUNCTIONS = [name for name, spec in POOLS.items() if not spec.runs_torch]


def invoke_by(monkeypatch, name, invoker):
    """Make the named pool invoke its functions through this invoker."""
    spec = replace(POOLS[name], maker=lambda *arguments: pool_of_functions(invoker(), *arguments))
    monkeypatch.setitem(POOLS, name, spec)


@pytest.fixture
def make(monkeypatch):
    """Makes pools whose functions are silent, and closes them."""
    for name in OF_FUNCTIONS:
        invoke_by(monkeypatch, name, Silent)
    made = []

    def make(**settings):
        request = PoolRequest(travel=FunctionsConfig(data_path="inline"), **settings)
        made.append(make_pool(request, PoolListeners()))
        return made[-1]

    yield make
    for each in made:
        each.pool.close()


def test_an_unknown_pool_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"pool='thread' is unknown: the known ones are http, .* Did you mean"):
        make_pool(PoolRequest(name="thread"), PoolListeners())


def test_threads_have_no_figures(make):
    made = make()
    assert isinstance(made.pool, ThreadsPool)
    assert made.figures() == {}


@pytest.mark.parametrize("name", [name for name in OF_FUNCTIONS if POOLS[name].tuning is not None])
def test_the_number_of_functions_is_tuned_from_the_start_unless_it_is_given(make, name):
    tuned, fixed = make(name=name, start=7), make(name=name, start=7, functions=3)
    assert (type(tuned.pool), tuned.pool.limit) == (Autotuned, 7)
    assert (type(fixed.pool), fixed.pool.limit) == (LimitedPool, 3)


def test_as_many_calls_are_under_way_as_there_are_processes(make):
    assert make(name="processes", start=50, workers=2).pool.limit == 2
    assert make(name="processes", start=50, workers=2, functions=4).pool.limit == 4


class Meeting(InProcess):
    """Functions that wait a moment for another one to be invoked meanwhile; ``most`` were under way at once."""

    def __init__(self):
        super().__init__(payload_limit_bytes=4096 + 2000, on_request=self._meet)
        self._lock, self._inside, self.most = threading.Lock(), 0, 0
        self._met = threading.Event()
        made_meetings.append(self)

    def _meet(self, frame):
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
            if self._inside > 1:
                self._met.set()
        self._met.wait(0.02)
        with self._lock:
            self._inside -= 1


made_meetings = []


@pytest.mark.parametrize("settings", [{"functions": 1}, {"start": 1}], ids=["given", "tuned"])
def test_a_call_that_travels_in_parts_takes_no_more_functions_at_once_than_are_allowed(make, monkeypatch, settings):
    invoke_by(monkeypatch, "lambda-local", Meeting)
    monkeypatch.setattr("dorylus.functions.export.Exports.program", lambda self, call: program_of(call))
    pool = make(name="lambda-local", **settings).pool
    calls = [a_call(num_rows=400, seed=seed) for seed in range(3)]
    waiting = [Waiting(pool, call) for call in calls]
    for each, call in zip(waiting, calls, strict=True):
        assert_same(each.reply(), dense.run(call))
    meeting = made_meetings.pop()
    assert len(meeting.requests) > 9
    assert meeting.most == 1


def test_fusion_can_be_switched_off(make):
    assert isinstance(make(name="lambda", fuse=False).pool, Unfused)


def test_a_pool_of_functions_reports_their_usage(make):
    figures = make(name="lambda", start=5).figures()
    assert (figures["functions"], figures["invocations"], figures["relaunches"]) == (5, 0, 0)
    assert {"bytes_in", "bytes_out", "billed_ms", "cold_starts", "duplicates", "duplicate_parts"} <= figures.keys()


def test_functions_behind_http_need_an_address():
    with pytest.raises(ConfigError, match="give function_url"):
        make_pool(PoolRequest(name="http"), PoolListeners())
