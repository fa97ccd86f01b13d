"""Many threads at once, on both sides of the wrappers: every call is answered once, and none after close."""

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from pool_doubles import a_call

from dorylus.errors import TrainingError
from dorylus.pools.autotune import Autotuned
from dorylus.pools.limited import LimitedPool
from dorylus.pools.pacing import Policy
from dorylus.pools.pool import Lost, Throttled
from dorylus.pools.relaunch import Relaunching
from dorylus.saga.dense import Reply

DEADLINE_S = 60.0
IMPATIENT = Policy(attempts=40, first_s=0.2, at_least_s=0.02, backoff_s=0.0005, backoff_at_most_s=0.002)


class RestlessPool:
    """Answers at once or from four threads of its own; three in ten are lost, throttled, repeated or missing."""

    def __init__(self, seed):
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="restless")
        self._random, self._lock = random.Random(seed), threading.Lock()

    def submit(self, call, done, failed):
        with self._lock:
            how = self._random.choices(["well", "lost", "throttled", "twice", "never"], [70, 12, 6, 10, 2])[0]
            at_once = self._random.random() < 0.3
        if at_once:
            self._answer(how, done, failed)
        else:
            self._threads.submit(self._answer, how, done, failed)

    def _answer(self, how, done, failed):
        if how in ("well", "twice"):
            done(Reply())
        if how == "twice":
            done(Reply())
        if how == "lost":
            failed(Lost("gone"))
        if how == "throttled":
            failed(Throttled())

    def close(self):
        self._threads.shutdown(wait=True, cancel_futures=True)


class WellPool(RestlessPool):
    """The same without failures."""

    def _answer(self, how, done, failed):
        done(Reply())


MADE = {
    "relaunching": lambda seed: Relaunching(RestlessPool(seed), IMPATIENT),
    "limited": lambda seed: LimitedPool(WellPool(seed), 3),
    "limited, relaunching": lambda seed: LimitedPool(Relaunching(RestlessPool(seed), IMPATIENT), 5),
    "autotuned, relaunching": lambda seed: Autotuned(Relaunching(RestlessPool(seed), IMPATIENT), 2),
}


class Callers:
    """Six threads that submit calls, and count how often each is answered."""

    def __init__(self, pool, calls):
        self._pool, self._calls = pool, calls
        self._changed = threading.Condition()
        self.answers = Counter()
        self.errors = []
        self._threads = [threading.Thread(target=self._submit, args=(k,)) for k in range(6)]
        for thread in self._threads:
            thread.start()

    def _submit(self, first):
        for interval in range(first * self._calls, (first + 1) * self._calls):
            try:
                self._pool.submit(a_call(interval), lambda reply, k=interval: self._note(k), self.errors.append)
            except TrainingError:  # closed meanwhile
                return

    def _note(self, interval):
        with self._changed:
            self.answers[interval] += 1
            self._changed.notify_all()

    def wait_for(self, count):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.answers) >= count, DEADLINE_S)

    def join(self):
        for thread in self._threads:
            thread.join(DEADLINE_S)
        assert not any(thread.is_alive() for thread in self._threads)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("seed", range(3))
def test_every_call_is_answered_once(name, seed):
    pool = MADE[name](seed)
    try:
        callers = Callers(pool, 100)
        callers.wait_for(600)
        callers.join()
    finally:
        pool.close()
    assert callers.errors == []
    assert set(callers.answers.values()) == {1}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("seed", range(5))
def test_no_call_is_answered_once_the_pool_is_closed(name, seed):
    pool = MADE[name](seed)
    callers = Callers(pool, 500)
    callers.wait_for(50)
    pool.close()
    answered = sum(callers.answers.values())
    callers.join()
    assert sum(callers.answers.values()) == answered
    assert set(callers.answers.values()) == {1}
