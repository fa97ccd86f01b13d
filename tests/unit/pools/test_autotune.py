"""The autotuner on simulated services: it ends near the best fixed limit from any start. See autotuning_shapes."""

from functools import cache

import pytest
from autotuning_shapes import LIMITS, SHAPES, STARTS
from pool_doubles import Caller, ScriptedPool, a_call

from dorylus.pools.autotune import Autotuned
from dorylus.pools.clock import ManualClock


@cache
def tuned(name, start):
    return SHAPES[name].tuned(start)


@pytest.mark.parametrize("name", SHAPES)
def test_epochs_end_within_15_percent_of_the_best_fixed_limit_from_any_start(name):
    shape = SHAPES[name]
    best_s = min(shape.fixed_s(limit) for limit in LIMITS)
    for start in STARTS:
        seconds, _, _ = tuned(name, start)
        assert seconds <= 1.15 * best_s


@pytest.mark.parametrize(
    ("name", "fewest", "most"),
    [
        ("wire: 50 ms, then a share of one wire", 8, 24),
        ("cores: 8, and more than 8 hinder each other", 7, 10),
        ("throttled: at most 20 at a time", 17, 40),  # more than 20 only wait inside: about as fast
        ("slow server: 2 cores make a call every 5 ms", 10, 20),
        ("bursts of 30 behind barriers", 30, 30),
    ],
)
@pytest.mark.parametrize("start", STARTS)
def test_the_limit_is_no_higher_than_needed(name, fewest, most, start):
    _, limit, _ = tuned(name, start)
    assert fewest <= limit <= most


def test_every_change_is_reported_with_its_reason():
    _, limit, decisions = tuned("cores: 8, and more than 8 hinder each other", 100)
    limits = [100] + [decision.new for decision in decisions]
    assert [decision.old for decision in decisions] == limits[:-1]
    assert limits[-1] == limit
    assert all(decision.reason and decision.throughput > 0 and decision.queue >= 0 for decision in decisions)


def test_calls_pass_through_the_autotuner_as_through_a_fixed_limit():
    inner, clock = ScriptedPool(), ManualClock()
    pool = Autotuned(inner, 2, clock)
    caller = Caller(pool)
    for interval in range(3):
        caller.submit(a_call(interval))
    assert (pool.limit, len(inner.launched), pool.load.waiting) == (2, 2, 1)
    inner.last.answer()
    assert len(inner.launched) == 3
    pool.close()
    assert inner.times_closed == 1
