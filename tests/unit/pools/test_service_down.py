"""A service that is down, or misbehaves in every way at once: callers are notified in time, and nothing is lost."""

from random import Random

import pytest
from broken_wrappers import TheServiceIsNeverDown
from hypothesis import given
from hypothesis import strategies as st
from pool_doubles import POLICY, Caller, a_call
from simulated_epochs import Epochs
from simulated_services import Saboteur, Service

from dorylus.pools.attempts import Attempts
from dorylus.pools.clock import ManualClock
from dorylus.pools.limited import LimitedPool
from dorylus.pools.pacing import Policy
from dorylus.pools.pool import Exhausted, Lost, Throttled, Unavailable
from dorylus.pools.relaunch import Relaunching
from dorylus.saga.dense import Reply


class DownPool:
    """While down, fails each attempt in the next of ``ways``: hang, lose, throttle or refuse, at once or later."""

    def __init__(self, clock, ways):
        self._clock, self._ways, self._next = clock, ways, 0
        self.is_up = False

    def submit(self, call, done, failed):
        if self.is_up:
            done(Reply())
            return
        behaviour, delay_s = self._ways[self._next % len(self._ways)]
        self._next += 1
        if behaviour is None:
            return
        if delay_s == 0.0:
            failed(behaviour())
        else:
            self._clock.call_later(delay_s, lambda: failed(behaviour()))

    def close(self):
        pass


WAYS = st.sampled_from(
    [None, lambda: Lost("gone"), Throttled, lambda: Throttled(2.0), lambda: Throttled(1e9), lambda: Unavailable("no")]
)


def check_callers_fail_in_time(ways, moments, worked_before, attempts=Attempts):
    """Submits calls at these moments to a service that is down in these ways: each call must fail once and in time."""
    clock = ManualClock()
    service = DownPool(clock, ways)
    pool = Relaunching(service, POLICY, clock)
    pool._attempts = attempts(POLICY, Random(0))
    service.is_up = worked_before
    if worked_before:
        pool.submit(a_call(), lambda reply: None, pytest.fail)
        service.is_up = False
    results, submitted_s = {}, {}
    for number, moment in enumerate(sorted(moments)):
        clock.advance(max(0.0, moment - clock.now()))
        submitted_s[number] = clock.now()
        note = lambda error, number=number: results.setdefault(number, []).append((clock.now(), error))  # noqa: E731
        pool.submit(a_call(number), note, note)
    clock.advance(POLICY.down_after_s)
    assert results.keys() == submitted_s.keys()
    for number, answers in results.items():
        ((when, error),) = answers
        assert isinstance(error, Unavailable | Exhausted)
        assert when - submitted_s[number] <= POLICY.down_after_s + 1e-6


@given(
    st.lists(st.tuples(WAYS, st.sampled_from([0.0, 0.1, 3.0, 50.0])), min_size=1, max_size=6),
    st.lists(st.floats(0.0, 60.0), min_size=1, max_size=8),
    st.booleans(),
)
def test_every_caller_is_notified_within_down_after_s_that_the_service_is_down(ways, moments, worked_before):
    check_callers_fail_in_time(ways, moments, worked_before)


@pytest.mark.parametrize("behaviour", [Throttled, lambda: Unavailable("no")])
def test_a_wrapper_that_never_calls_a_service_down_is_caught(behaviour):
    check_callers_fail_in_time([(behaviour, 0.1)], [0.0, 1.0], worked_before=True)
    with pytest.raises(AssertionError):
        check_callers_fail_in_time([(behaviour, 0.1)], [0.0, 1.0], worked_before=True, attempts=TheServiceIsNeverDown)


@pytest.mark.parametrize("behaviour", [None, lambda: Lost("gone"), Throttled, lambda: Unavailable("no such function")])
def test_a_run_whose_service_is_down_from_the_first_call_on_stops(behaviour):
    clock = ManualClock()
    pool = LimitedPool(Relaunching(DownPool(clock, [(behaviour, 0.05)]), Policy(), clock), 8, clock)
    caller = Caller(pool)
    for interval in range(100):
        caller.submit(a_call(interval))
    clock.advance(Policy().down_after_s)
    assert len(caller.errors) == 100
    assert all(isinstance(error, Unavailable | Exhausted) for error in caller.errors)


@pytest.mark.parametrize("seed", range(3))
def test_with_a_third_of_all_attempts_misbehaving_every_epoch_is_finished(seed):
    clock = ManualClock()
    relaunching = Relaunching(Saboteur(Service(clock, latency_s=0.05), clock, 0.3, seed), Policy(), clock)
    pool, epochs = LimitedPool(relaunching, 20, clock), Epochs(clock, intervals=50, steps=4)
    seconds = [epochs.run(pool, epoch) for epoch in range(5)]
    counts = relaunching.counts
    assert counts.calls == 1000
    assert min(counts.timeouts, counts.losses, counts.throttled, counts.refused, counts.duplicates) > 5
    assert counts.launches - counts.relaunches == counts.calls
    assert max(seconds) < 60
