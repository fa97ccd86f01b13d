import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylus.pools.pacing import Durations, Policy

POLICY = Policy(first_s=30.0, at_least_s=1.0, at_most_s=100.0)


@pytest.fixture
def durations():
    return Durations(POLICY)


def test_before_any_answer_the_time_out_is_first_s(durations):
    assert durations.timeout_s("AV") == POLICY.first_s


def test_the_time_out_falls_with_every_answer(durations):
    seen = [durations.timeout_s("AV")]
    for _ in range(15):
        durations.observe("AV", 0.5)
        seen.append(durations.timeout_s("AV"))
    assert seen == sorted(seen, reverse=True)
    assert seen[3] == pytest.approx(0.5 + 30 / 4)
    assert seen[15] == POLICY.at_least_s


def test_the_time_out_is_the_mean_plus_some_deviations(durations):
    draw = random.Random(1)
    for _ in range(500):
        durations.observe("AV", draw.gauss(5.0, 1.0))
    assert durations.timeout_s("AV") == pytest.approx(5.0 + 4 * 0.8, rel=0.25)  # the mean deviation of a normal is 0.8


def test_kinds_are_kept_apart(durations):
    for _ in range(20):
        durations.observe("AV", 0.1)
    assert durations.timeout_s("AV") == POLICY.at_least_s
    assert durations.timeout_s("∇AV") == POLICY.first_s


def test_each_time_out_of_a_call_doubles_its_next_one(durations):
    assert [durations.timeout_s("AV", timeouts) for timeouts in range(4)] == [30.0, 60.0, 100.0, 100.0]
    assert durations.timeout_s("AV", 10_000) == 100.0


def test_one_very_slow_answer_hardly_changes_the_time_out(durations):
    for _ in range(30):
        durations.observe("AV", 0.4)
    durations.observe("AV", 90.0)
    assert durations.timeout_s("AV") < 4.0
    for _ in range(10):
        durations.observe("AV", 0.4)
    assert durations.timeout_s("AV") == POLICY.at_least_s


def test_a_service_that_becomes_slow_is_waited_for_after_a_few_answers(durations):
    for _ in range(30):
        durations.observe("AV", 0.1)
    for _ in range(6):
        durations.observe("AV", 9.0)
    assert durations.timeout_s("AV") > 9.0


@given(st.lists(st.floats(0, 1e6), max_size=30), st.integers(0, 100))
def test_the_time_out_stays_within_its_bounds(seen, timeouts):
    durations = Durations(POLICY)
    for seconds in seen:
        durations.observe("AV", seconds)
    assert POLICY.at_least_s <= durations.timeout_s("AV", timeouts) <= POLICY.at_most_s
