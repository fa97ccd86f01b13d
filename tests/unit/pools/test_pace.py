from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylus.pools.pacing import Pace, Policy

POLICY = Policy(backoff_s=0.2, backoff_at_most_s=10.0)


@pytest.fixture
def pace():
    return Pace(POLICY)


def launch(pace, count):
    return [pace.launched() for _ in range(count)]


def throttle(pace, number, now_s=0.0, retry_after_s=None):
    pace.ended()
    pace.throttled(number, now_s, retry_after_s)


def succeed(pace):
    pace.ended()
    pace.succeeded()


def test_nothing_is_held_back_as_long_as_nothing_is_throttled(pace):
    launch(pace, 10_000)
    assert pace.window == inf
    assert pace.ready_s() == -inf


def test_the_window_becomes_a_little_less_than_what_the_service_took(pace):
    for number in launch(pace, 100)[20:]:
        throttle(pace, number)
    assert pace.window == pytest.approx(0.85 * 20)
    assert pace.ready_s() == inf  # 20 are under way: one must end first
    for _ in range(4):
        succeed(pace)
    assert pace.ready_s() == -inf


def test_a_burst_that_is_throttled_is_one_event_however_many_come_back(pace):
    for number in launch(pace, 100):
        throttle(pace, number)
    assert pace.window == 1.0
    assert pace.ready_s() == -inf  # one may try at once


def test_the_window_grows_by_one_when_as_many_succeed_as_it_holds(pace):
    for number in launch(pace, 100)[20:]:
        throttle(pace, number)
    for _ in range(17):
        succeed(pace)
        launch(pace, 1)
    assert pace.window == pytest.approx(18.0, abs=0.1)


def test_a_window_that_is_not_in_use_does_not_grow(pace):
    for number in launch(pace, 100)[20:]:
        throttle(pace, number)
    for _ in range(19):
        succeed(pace)
    before = pace.window
    for _ in range(50):
        launch(pace, 1)
        succeed(pace)
    assert pace.window == before


def test_throttling_without_a_success_makes_launches_pause_longer_and_longer(pace):
    pauses, now_s = [], 100.0
    for _ in range(9):
        throttle(pace, pace.launched(), now_s)
        pauses.append(max(pace.ready_s() - now_s, 0.0))
        now_s += pauses[-1]
    assert pauses == pytest.approx([0.0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])


def test_a_success_ends_the_pauses(pace):
    for _ in range(4):
        throttle(pace, pace.launched(), 0.0)
    launch(pace, 1)
    succeed(pace)
    throttle(pace, pace.launched(), 50.0)
    assert pace.ready_s() < 50.0


def test_launches_pause_for_the_services_retry_delay(pace):
    throttle(pace, pace.launched(), 100.0, retry_after_s=3.0)
    assert pace.ready_s() == 103.0
    throttle(pace, pace.launched(), 100.0, retry_after_s=-5.0)
    assert pace.ready_s() == 103.0


def test_a_retry_delay_counts_for_at_most_down_after_s(pace):
    throttle(pace, pace.launched(), 100.0, retry_after_s=86_400.0)
    assert pace.ready_s() == 100.0 + POLICY.down_after_s


@given(st.lists(st.sampled_from(["launch", "succeed", "throttle", "throttle all"]), max_size=80))
def test_one_call_may_always_start_when_none_is_under_way(steps):
    pace, under_way = Pace(POLICY), []
    for step in steps:
        if step == "launch":
            under_way.append(pace.launched())
        elif under_way and step == "succeed":
            under_way.pop()
            succeed(pace)
        else:
            for _ in range(min(len(under_way), 1 if step == "throttle" else 100)):
                throttle(pace, under_way.pop(0))
        assert pace.window >= 1
        assert under_way or pace.ready_s() < inf
