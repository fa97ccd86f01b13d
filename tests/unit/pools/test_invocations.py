import pytest
from linear_functions import a_call

from dorylus.errors import TrainingError
from dorylus.pools.functions.invocations import FunctionUsage, Invocations, Invoked, UsageCounter
from dorylus.pools.pool import InvocationResponse, Lost, Throttled
from dorylus.wire.frames import pack


class FixedInvoker:
    """An invoker that gives one answer, or raises it."""

    payload_limit_bytes = None

    def __init__(self, header, **response):
        self._header, self._response = header, response

    def invoke(self, request, timeout_s):
        if isinstance(self._header, Exception):
            raise self._header
        if isinstance(self._header, bytes):
            return InvocationResponse(self._header)
        return InvocationResponse(b"".join(pack(self._header, {})), **self._response)

    def close(self):
        pass


class OneInvocation:
    """One invocation of such an invoker, on a clock that advances one second at every reading."""

    def __init__(self, header, **response):
        self.usage, self.invoked = UsageCounter(), []
        ticks = iter(range(10))
        self._invocations = Invocations(
            FixedInvoker(header, **response), self.usage, 1.0, self.invoked.append, lambda: float(next(ticks))
        )

    def run(self):
        return self._invocations.run(a_call(), {}, {})


@pytest.mark.parametrize("kind", ["frame", "wire", "refused"])
def test_a_function_that_could_not_reach_its_data_is_lost(kind):
    with pytest.raises(Lost, match="gone"):
        OneInvocation({"error": "gone", "kind": kind}).run()


@pytest.mark.parametrize("kind", ["task", "unheard of"])
def test_any_other_error_is_an_error_of_the_body(kind):
    with pytest.raises(
        TrainingError, match=r"^a linear body failed on interval 0 in epoch 1, in a function: bad$"
    ) as e:
        OneInvocation({"error": "bad", "kind": kind}).run()
    assert type(e.value) is TrainingError


def test_an_answer_that_is_no_frame_is_lost():
    with pytest.raises(Lost, match="no frame"):
        OneInvocation(b"<html>").run()


def test_the_services_billing_takes_precedence_over_the_functions_timings():
    timings = {"timings": {"total_ms": 7.2, "compute_ms": 3.0}, "cold": True}
    by_function, by_service = OneInvocation(timings), OneInvocation(timings, billed_ms=100.0, cold=False)
    by_function.run()
    by_service.run()
    assert by_function.usage.total().billed_ms == 8
    assert by_function.usage.total().cold_starts == 1
    assert by_service.usage.total().billed_ms == 100
    assert by_service.usage.total().cold_starts == 0
    assert by_service.usage.total().compute_ms == 3


def test_each_invocation_is_reported_to_the_meter():
    invocation = OneInvocation({"timings": {"total_ms": 7}})
    invocation.run()
    (invoked,) = invocation.invoked
    assert (invoked.kind, invoked.billed_ms, invoked.cold) == ("AV", 7, False)
    assert invoked.bytes_in > 0 < invoked.bytes_out


@pytest.mark.parametrize("lost", [Lost("died"), b"<html>"])
def test_a_lost_invocation_is_billed_for_as_long_as_it_was_waited_for(lost):
    invocation = OneInvocation(lost)
    with pytest.raises(Lost):
        invocation.run()
    assert invocation.invoked == [Invoked("AV", 1000.0, False, invocation.usage.total().bytes_in, 0)]


def test_a_throttled_invocation_is_counted_but_not_billed():
    invocation = OneInvocation(Throttled(1.0))
    with pytest.raises(Throttled):
        invocation.run()
    assert invocation.invoked == []
    assert invocation.usage.total().invocations == 1


@pytest.mark.parametrize("timings", [None, [], {"total_ms": "long"}, {"total_ms": -5}, {"total_ms": 1e300}])
def test_timings_that_make_no_sense_count_nothing(timings):
    invocation = OneInvocation({"timings": timings})
    invocation.run()
    assert invocation.usage.total().billed_ms == 0


def test_usage_is_a_copy_and_adds_up():
    counter = UsageCounter()
    counter.add("AV", invocations=1)
    before = counter.snapshot()
    counter.add("AV", invocations=1)
    counter.add("∇AV", duplicates=3, billed_ms=1.5)
    assert before == {"AV": FunctionUsage(invocations=1)}
    assert counter.total() == FunctionUsage(invocations=2, duplicates=3, billed_ms=1.5)
