from math import inf

import pytest
from pool_doubles import POLICY

from dorylus.pools.attempts import Attempt
from dorylus.pools.pacing import Durations, Overdue


@pytest.fixture
def durations():
    return Durations(POLICY)


@pytest.fixture
def overdue(durations):
    return Overdue(durations)


def watch(overdue, now_s, kind="AV", timeouts=0):
    attempt = Attempt(None, kind, now_s, 0)
    overdue.watch(attempt, kind, timeouts, now_s)
    return attempt


def test_nothing_is_overdue_while_nothing_is_under_way(overdue):
    assert overdue.next_s() == inf
    assert overdue.take(1e9) == []


def test_an_attempt_is_overdue_after_its_time_out(overdue):
    attempt = watch(overdue, 5.0)
    assert overdue.next_s() == 5.0 + POLICY.first_s
    assert overdue.take(14.9) == []
    assert overdue.take(15.0) == [attempt]
    assert overdue.next_s() == inf


def test_calls_that_had_time_outs_before_are_given_longer(overdue):
    later, sooner = watch(overdue, 0.0, timeouts=1), watch(overdue, 5.0)
    assert overdue.take(15.0) == [sooner]
    assert overdue.take(20.0) == [later]


def test_an_attempt_that_has_reported_is_never_overdue(overdue):
    attempt, other = watch(overdue, 0.0), watch(overdue, 1.0)
    overdue.forget(attempt)
    overdue.forget(attempt)
    assert overdue.next_s() == 11.0
    assert overdue.take(100.0) == [other]


def test_the_time_out_follows_later_answers(overdue, durations):
    attempt = watch(overdue, 0.0)
    for _ in range(20):
        durations.observe("AV", 0.1)
    assert overdue.next_s() == POLICY.at_least_s
    assert overdue.take(1.0) == [attempt]
