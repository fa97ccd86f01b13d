import pytest

from dorylus.pools.autotune import MeasuringWindow
from dorylus.pools.limited import Completion


def completion(kind="AV", *, busy_s=0.1, latency_s=0.5, **options):
    fields = {"interval": 0, "waited": False, "waiting_s": 0.0, "peak": 1} | options
    return Completion(kind, launched_s=10.0, ended_s=10.0 + latency_s, busy_s=busy_s, **fields)


def measured(completions, limit=4):
    window = MeasuringWindow(limit)
    for each in completions:
        window.add(each)
    return window.measure()


def test_throughput_is_calls_per_busy_second():
    measure = measured([completion(busy_s=0.5), completion(busy_s=0.1), completion(busy_s=0.2)])
    assert measure.throughput == pytest.approx(3 / 0.8)
    assert (measure.limit, measure.calls) == (4, 3)


def test_a_measure_holds_how_many_calls_waited_and_how_many_were_under_way():
    measure = measured(
        [
            completion(busy_s=1.0, waiting_s=3.0, waited=True, peak=2),
            completion(busy_s=1.0, waiting_s=1.0, peak=5),
        ]
    )
    assert (measure.queue, measure.waited, measure.peak) == (2.0, 0.5, 5)


def test_the_speed_up_is_the_ratio_of_busy_times_per_call():
    slow, fast = measured([completion(busy_s=0.2)] * 10), measured([completion(busy_s=0.1)] * 10)
    assert fast.speed_up(slow) == pytest.approx(2.0)
    assert slow.speed_up(fast) == pytest.approx(0.5)


def test_calls_are_compared_kind_by_kind_in_any_mixture():
    light, heavy = completion("AV", busy_s=0.1), completion("∇AV", busy_s=0.4)
    before, after = measured([light] * 30 + [heavy] * 10), measured([light] * 10 + [heavy] * 30)
    assert after.speed_up(before) == pytest.approx(1.0)


def test_windows_without_a_kind_in_common_have_a_speed_up_of_one():
    assert measured([completion("AV")]).speed_up(measured([completion("∇AV")])) == 1.0


def test_a_call_that_hung_does_not_make_its_limit_look_slow():
    usual = [completion(busy_s=0.1, latency_s=0.5)] * 50
    hung = completion(busy_s=30.0, latency_s=30.0)
    assert measured([*usual, hung]).speed_up(measured(usual)) > 0.75
