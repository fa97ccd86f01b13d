"""Services that run calls in simulated time: each is a pool on a clock that is moved by hand. Nothing computes."""

import heapq
import random
from itertools import count

from dorylus.pools.pool import Lost, Throttled, Unavailable
from dorylus.saga.dense import Reply


class Sharing:
    """Work that shares something: ``speed(n)`` is how fast each of n calls goes on, 1 being as fast as alone."""

    def __init__(self, clock, speed):
        self._clock, self._speed = clock, speed
        self._numbers, self._ends = count(), []
        self._virtual = self._since = 0.0
        self._timer = None

    @property
    def sharers(self):
        return len(self._ends)

    def work(self, seconds, finished):
        """Call ``finished`` when this much work, in seconds alone, is done."""
        self._move_on()
        heapq.heappush(self._ends, (self._virtual + seconds, next(self._numbers), finished))
        self._set_timer()

    def _move_on(self):
        now = self._clock.now()
        if self._ends:
            self._virtual += (now - self._since) * self._speed(len(self._ends))
        self._since = now

    def _set_timer(self):
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._ends:
            left = (self._ends[0][0] - self._virtual) / self._speed(len(self._ends))
            self._timer = self._clock.call_later(left, self._end)

    def _end(self):
        self._move_on()
        end, _, finished = heapq.heappop(self._ends)
        self._virtual = max(self._virtual, end)
        self._set_timer()
        finished()


class Service:
    """Answers each call after a latency, then so much work that it shares with the others; both vary by ``noise``.

    ``weights[step]`` is how much longer calls of a step take. Beyond ``concurrency`` calls it throttles.
    """

    def __init__(
        self,
        clock,
        *,
        latency_s=0.0,
        work_s=0.0,
        speed=lambda n: 1.0,
        noise=0.2,
        weights=(1,),
        concurrency=None,
    ):
        self._clock, self._latency_s, self._work_s, self._noise = clock, latency_s, work_s, noise
        self._weights, self._concurrency = weights, concurrency
        self._shared, self._random = Sharing(clock, speed), random.Random(7)
        self._under_way = 0

    def submit(self, call, done, failed):
        if self._concurrency is not None and self._under_way >= self._concurrency:
            self._clock.call_later(0.005, lambda: failed(Throttled()))
            return
        self._under_way += 1

        def end():
            self._under_way -= 1
            done(Reply())

        weight = self._weights[call.task.step % len(self._weights)] * self._random.lognormvariate(0, self._noise)
        work = lambda: self._shared.work(self._work_s * weight, end) if self._work_s else end()  # noqa: E731
        self._clock.call_later(self._latency_s * weight, work)

    def close(self):
        pass


def bandwidth(n):
    """One wire: n calls get an n-th of it each."""
    return 1 / n


def contended(cores, loss):
    """So many cores; calls beyond them share, and hinder each other by ``loss`` for each of them beyond."""
    return lambda n: 1.0 if n <= cores else cores / n / (1 + loss * (n - cores) / cores)


class Saboteur:
    """Lets so large a share of attempts misbehave: lost, throttled, hanging, crawling, answered twice, refused."""

    def __init__(self, inner, clock, share, seed):
        self._inner, self._clock, self._share, self._random = inner, clock, share, random.Random(seed)

    def submit(self, call, done, failed):
        if self._random.random() > self._share:
            self._inner.submit(call, done, failed)
            return
        later = self._clock.call_later
        lose, throttle, answer = lambda: failed(Lost("?")), lambda: failed(Throttled()), lambda: done(Reply())
        ways = {
            "lost at once": lose,
            "lost later": lambda: later(0.2, lose),
            "throttled": throttle,
            "throttled, with a delay": lambda: failed(Throttled(0.3)),
            "hangs": lambda: None,
            "crawls": lambda: later(5.0, answer),
            "twice": lambda: (later(0.05, answer), later(0.06, answer)),
            "lost, then here": lambda: (later(0.05, lose), later(0.06, answer)),
            "refused": lambda: failed(Unavailable("connection refused")),
        }
        ways[self._random.choice(sorted(ways))]()

    def close(self):
        self._inner.close()
