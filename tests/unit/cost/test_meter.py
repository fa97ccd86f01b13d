import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylus.cost import FunctionUse, Meter, Phase, Role, Rounding, Usage
from dorylus.errors import DataError


def billed_ms(duration_ms, rounding, **more):
    meter = Meter(rounding)
    meter.add_call(duration_ms, 1024, phase=Phase.TRAINING, **more)
    return meter.snapshot().of_functions().mb_ms / 1024


@pytest.mark.parametrize(
    ("duration_ms", "by_1_ms", "by_100_ms"),
    [
        (0.0, 1, 100),
        (0.2, 1, 100),
        (1.0, 1, 100),
        (1.0001, 2, 100),
        (99.0, 99, 100),
        (99.999, 100, 100),
        (100.0, 100, 100),
        (100.001, 101, 200),
        (0.1 * 3 * 1000, 300, 300),  # 300.00000000000006 in floating point
        (60_000.5, 60_001, 60_100),
    ],
)
def test_a_call_is_rounded_up_to_the_services_step(duration_ms, by_1_ms, by_100_ms):
    assert billed_ms(duration_ms, Rounding(1)) == by_1_ms
    assert billed_ms(duration_ms, Rounding(100)) == by_100_ms


def test_each_call_is_rounded_not_their_sum():
    meter = Meter(Rounding(100))
    for _ in range(10):
        meter.add_call(10, 1024)
    assert meter.snapshot().of_functions().gb_s == 1


@pytest.mark.parametrize(("duration_ms", "billed"), [(3, 1000), (1000, 1000), (1001, 1100)])
def test_a_least_time_is_billed_where_the_service_has_one(duration_ms, billed):
    assert billed_ms(duration_ms, Rounding(100, minimum_ms=1000)) == billed


def test_memory_is_rounded_up_where_the_service_does():
    meter = Meter(Rounding(1, memory_step_mb=128))
    meter.add_call(1000, 129)
    assert meter.snapshot().of_functions().mb_ms == 256 * 1000


def test_a_cold_start_is_counted_apart_and_rounded_with_its_call():
    meter = Meter(Rounding(1))
    meter.add_call(10.4, 1024, cold_ms=20.4)
    used = meter.snapshot().of_functions()
    assert (used.mb_ms / 1024, used.cold_mb_ms / 1024) == (11, 20)  # 10.4 + 20.4 are billed as 31
    assert (used.requests, used.cold_starts, used.cold_us) == (1, 1, 20_400)


def test_vcpus_are_counted_where_they_are_paid():
    meter = Meter(Rounding(100))
    meter.add_call(250, 512, vcpus=0.5, cold_ms=100)
    used = meter.snapshot().of_functions()
    assert (float(used.vcpu_s), float(used.cold_vcpu_s)) == (0.15, 0.05)


def test_usage_is_counted_under_the_current_phase():
    meter = Meter()
    meter.add_servers(Role.GRAPH, 7.5, count=4)
    meter.phase = Phase.TRAINING
    meter.add_servers(Role.GRAPH, 10, count=4)
    meter.add_servers(Role.PARAMETER, 10)
    meter.add_call(5, 1024)
    meter.add_call(5, 1024, phase=Phase.EVALUATION)
    used = meter.snapshot()
    assert {key: ns / 1e9 for key, ns in used.server_ns.items()} == {
        (Role.GRAPH, Phase.SETUP): 30,
        (Role.GRAPH, Phase.TRAINING): 40,
        (Role.PARAMETER, Phase.TRAINING): 10,
    }
    assert used.of_functions([Phase.TRAINING]).requests == 1
    assert used.of_functions().requests == 2


def test_bytes_are_counted_by_path():
    meter = Meter()
    meter.add_bytes("cross-zone", 2**30)
    meter.add_bytes("cross-zone", 2**29)
    meter.add_bytes("internet", 1)
    assert meter.snapshot().moved_gb("cross-zone") == 1.5
    assert meter.snapshot().moved_bytes == {"cross-zone": 3 * 2**29, "internet": 1}


def test_a_snapshot_does_not_change_when_the_meter_goes_on():
    meter = Meter()
    meter.add_call(5, 1024)
    before = meter.snapshot()
    meter.add_call(5, 1024)
    meter.add_bytes("internet", 1)
    assert before.of_functions().requests == 1
    assert before.moved_bytes == {}


def test_threads_that_add_at_once_lose_nothing():
    meter = Meter(Rounding(1))
    start = threading.Barrier(8)

    def add():
        start.wait(timeout=30)
        for _ in range(500):
            meter.add_call(1.5, 128)
            meter.add_servers(Role.GRAPH, 0.1)
            meter.add_bytes("same-zone", 3)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    used = meter.snapshot()
    assert used.of_functions() == FunctionUse(requests=4000, mb_ms=4000 * 2 * 128)
    assert used.server_ns == {(Role.GRAPH, Phase.SETUP): 400 * 10**9}
    assert used.moved_bytes == {"same-zone": 12_000}


durations = st.floats(0, 1e6)
additions = st.lists(
    st.one_of(
        st.tuples(st.just("call"), durations, st.integers(128, 10_240), durations, st.sampled_from(Phase)),
        st.tuples(st.just("servers"), st.sampled_from(Role), durations, st.integers(0, 64), st.sampled_from(Phase)),
        st.tuples(st.just("bytes"), st.sampled_from(["same-zone", "internet"]), st.integers(0, 2**50)),
    ),
    max_size=20,
)


def add_all(meter, what):
    for kind, *given_ in what:
        if kind == "call":
            meter.add_call(given_[0], given_[1], cold_ms=given_[2], phase=given_[3])
        elif kind == "servers":
            meter.add_servers(given_[0], given_[1], count=given_[2], phase=given_[3])
        else:
            meter.add_bytes(*given_)


@given(additions, additions)
def test_a_resumed_meter_goes_on_with_its_count(before, after):
    whole = Meter(Rounding(100))
    add_all(whole, before + after)
    first = Meter(Rounding(100))
    add_all(first, before)
    resumed = Meter.from_dict(json.loads(json.dumps(first.to_dict())), Rounding(100))
    add_all(resumed, after)
    assert resumed.to_dict() == whole.to_dict()


@given(st.permutations(range(12)))
def test_no_order_of_adding_changes_the_sum(order):
    meter = Meter()
    for index in order:
        meter.add_servers(Role.GRAPH, 0.1 * 3**index)
        meter.add_call(0.1 * 3**index, 128 + index)
    straight = Meter()
    for index in range(12):
        straight.add_servers(Role.GRAPH, 0.1 * 3**index)
        straight.add_call(0.1 * 3**index, 128 + index)
    assert meter.to_dict() == straight.to_dict()


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_what_cannot_have_been_used_is_refused(bad):
    meter = Meter()
    with pytest.raises(ValueError, match="finite and not negative"):
        meter.add_servers(Role.GRAPH, bad)
    with pytest.raises(ValueError, match="finite and not negative"):
        meter.add_call(bad, 128)
    with pytest.raises(ValueError, match="not negative"):
        meter.add_bytes("internet", -1)
    assert meter.snapshot() == Usage()


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"server_ns": {"graph": {"training": -1}}, "functions": {}, "moved_bytes": {}},
        {"server_ns": {"graph": {"training": 1.5}}, "functions": {}, "moved_bytes": {}},
        {"server_ns": {"nobody": {"training": 1}}, "functions": {}, "moved_bytes": {}},
        {"server_ns": {}, "functions": {"training": {"calls": 1}}, "moved_bytes": {}},
        {"server_ns": [], "functions": {}, "moved_bytes": {}},
    ],
)
def test_a_damaged_count_is_refused(damaged):
    with pytest.raises(DataError, match="what a run used cannot be read"):
        Meter.from_dict(damaged)
