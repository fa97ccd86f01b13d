"""Random faults in every part of an invocation: every call is answered once, with the right result."""

import random
import threading

import linear_functions as linear
import pytest
from linear_functions import InProcess, PortsInProcess, Waiting, a_call, assert_same

from dorylus.functions.direct_path import Links
from dorylus.pools.functions.functions_pool import FunctionsPool, Programs
from dorylus.pools.functions.invocations import FunctionsConfig
from dorylus.pools.pool import Lost, PoolFault, Throttled
from dorylus.saga import dense
from dorylus.saga.dense import Mode
from dorylus.wire.frames import WireError

NUM_CALLS = 60


class Saboteur(InProcess):
    """Loses requests and answers, runs requests twice and throttles, at random with a fixed seed."""

    def __init__(self, links, seed):
        super().__init__(links)
        self._random, self._lock = random.Random(seed), threading.Lock()

    def invoke(self, request, timeout_s):
        with self._lock:
            fate = self._random.choice(["good"] * 6 + ["lost", "answer lost", "twice", "throttled"])
        if fate == "lost":
            raise Lost("on its way")
        if fate == "throttled":
            raise Throttled(0.1)
        if fate == "twice":
            super().invoke(request, timeout_s)
        answer = super().invoke(request, timeout_s)
        if fate == "answer lost":
            raise Lost("on its way back")
        return answer


class BreakingPorts(PortsInProcess):
    """Connections break at random: before a part, or between the outputs and the gradients."""

    def __init__(self, seed):
        super().__init__()
        self._random, self._lock = random.Random(seed), threading.Lock()

    def connect(self, address, keys):
        link = super().connect(address, keys)
        receive = link.receive

        def may_break(request, timeout_s):
            with self._lock:
                breaks = self._random.random() < 0.1
            if breaks:
                raise WireError("the line is cut")
            return receive(request, timeout_s)

        link.receive = may_break
        return link


class Stubborn:
    """Submits a failed call again, and some twice from the start; the first answer counts."""

    def __init__(self, pool, seed):
        self._pool, self._random = pool, random.Random(seed)

    def submit(self, call, done, failed):
        first = threading.Lock()

        def answer(reply):
            if first.acquire(blocking=False):
                done(reply)

        def again(error):
            if not isinstance(error, PoolFault):
                failed(error)
            elif not first.locked():
                self._pool.submit(call, answer, again)

        for _ in range(self._random.choice([1, 1, 2])):
            self._pool.submit(call, answer, again)


@pytest.mark.parametrize("path", ["inline", "direct"])
@pytest.mark.parametrize("seed", range(3))
def test_every_call_is_answered_once_with_the_right_result_under_random_faults(path, seed):
    ports = BreakingPorts(seed)
    invoker = Saboteur(Links(ports.connect), seed)
    config = FunctionsConfig(data_path=path, part_rows=4, max_invocations=6)
    programs = Programs(lambda call: call.mode, linear.program_of)
    pool = FunctionsPool(invoker, programs, config, open_ports=ports.open)
    try:
        stubborn = Stubborn(pool, seed)
        calls = [a_call(random.Random(k).choice(list(Mode)), num_rows=11, seed=k) for k in range(NUM_CALLS)]
        expected = [dense.run(call) for call in calls]
        waiting = [Waiting(stubborn, call) for call in calls]
        for each, want in zip(waiting, expected, strict=True):
            assert_same(each.reply(), want)
    finally:
        pool.close()
    assert [each.answers for each in waiting] == [1] * NUM_CALLS
