import pytest
from linear_functions import a_call

from dorylus.errors import TrainingError
from dorylus.pools.functions.invocations import FunctionUsage, Invocations, Invoked, UsageCounter
from dorylus.pools.pool import InvocationResponse, Lost, Throttled
from dorylus.wire.frames import pack


class Says:
    """An invoker that gives one answer, or raises it."""

    payload_limit_bytes = None

    def __init__(self, header, **said):
        self._header, self._said = header, said

    def invoke(self, request, timeout_s):
        if isinstance(self._header, Exception):
            raise self._header
        if isinstance(self._header, bytes):
            return InvocationResponse(self._header)
        return InvocationResponse(b"".join(pack(self._header, {})), **self._said)

    def close(self):
        pass


class Asked:
    """One invocation of such an invoker, waited for by a clock that ticks seconds."""

    def __init__(self, header, **said):
        self.usage, self.invoked = UsageCounter(), []
        ticks = iter(range(10))
        self._invocations = Invocations(
            Says(header, **said), self.usage, 1.0, self.invoked.append, lambda: float(next(ticks))
        )

    def run(self):
        return self._invocations.run(a_call(), {}, {})


@pytest.mark.parametrize("kind", ["frame", "wire", "refused"])
def test_a_function_that_could_not_reach_its_data_is_lost(kind):
    with pytest.raises(Lost, match="gone"):
        Asked({"error": "gone", "kind": kind}).run()


@pytest.mark.parametrize("kind", ["task", "unheard of"])
def test_any_other_error_is_the_bodys_own(kind):
    with pytest.raises(
        TrainingError, match=r"^a linear body failed on interval 0 in epoch 1, in a function: bad$"
    ) as e:
        Asked({"error": "bad", "kind": kind}).run()
    assert type(e.value) is TrainingError


def test_an_answer_that_is_no_frame_is_lost():
    with pytest.raises(Lost, match="no frame"):
        Asked(b"<html>").run()


def test_what_the_service_bills_goes_before_what_the_function_says():
    timings = {"timings": {"total_ms": 7.2, "compute_ms": 3.0}, "cold": True}
    by_function, by_service = Asked(timings), Asked(timings, billed_ms=100.0, cold=False)
    by_function.run()
    by_service.run()
    assert by_function.usage.total().billed_ms == 8
    assert by_function.usage.total().cold_starts == 1
    assert by_service.usage.total().billed_ms == 100
    assert by_service.usage.total().cold_starts == 0
    assert by_service.usage.total().compute_ms == 3


def test_each_invocation_is_told_to_whoever_meters():
    asked = Asked({"timings": {"total_ms": 7}})
    asked.run()
    (invoked,) = asked.invoked
    assert (invoked.kind, invoked.billed_ms, invoked.cold) == ("AV", 7, False)
    assert invoked.bytes_in > 0 < invoked.bytes_out


@pytest.mark.parametrize("lost", [Lost("died"), b"<html>"])
def test_a_lost_invocation_is_billed_for_as_long_as_it_was_waited_for(lost):
    asked = Asked(lost)
    with pytest.raises(Lost):
        asked.run()
    assert asked.invoked == [Invoked("AV", 1000.0, False, asked.usage.total().bytes_in, 0)]


def test_a_throttled_invocation_is_counted_but_not_billed():
    asked = Asked(Throttled(1.0))
    with pytest.raises(Throttled):
        asked.run()
    assert asked.invoked == []
    assert asked.usage.total().invocations == 1


@pytest.mark.parametrize("timings", [None, [], {"total_ms": "long"}, {"total_ms": -5}, {"total_ms": 1e300}])
def test_timings_that_make_no_sense_count_nothing(timings):
    asked = Asked({"timings": timings})
    asked.run()
    assert asked.usage.total().billed_ms == 0


def test_usage_is_a_copy_and_adds_up():
    counter = UsageCounter()
    counter.add("AV", invocations=1)
    before = counter.snapshot()
    counter.add("AV", invocations=1)
    counter.add("∇AV", duplicates=3, billed_ms=1.5)
    assert before == {"AV": FunctionUsage(invocations=1)}
    assert counter.total() == FunctionUsage(invocations=2, duplicates=3, billed_ms=1.5)
