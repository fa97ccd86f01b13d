"""Limits the calls in flight of any pool; the others wait, in order of priority.

:class:`CallQueue` decides; it is pure: time is passed in. :class:`LimitedPool` submits the calls.
"""

import heapq
import threading
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from dorylus.errors import ConfigError, TrainingError
from dorylus.pipeline import Task
from dorylus.pools.clock import Callback, CallbackQueue, Clock, RealClock
from dorylus.pools.pool import TensorPool, name_of
from dorylus.saga import Call, Reply


@dataclass(eq=False)
class QueuePlace:
    """A call in the queue."""

    call: Call
    done: Callable[[Reply], None]
    failed: Callable[[BaseException], None]
    joined_s: float
    launched_s: float = 0.0
    dropped: bool = False  # cancelled: its answer is dropped


class Completion(NamedTuple):
    """An answered call, and the load since the completion before it.

    ``kind``: what calls that do the same work have in common. ``busy_s`` is the part of that time with any call in
    the queue, ``waiting_s`` the integral over it of how many waited, ``peak`` the most that were under way. ``waited``:
    whether this call had to wait.
    """

    kind: Hashable
    interval: int
    launched_s: float
    ended_s: float
    waited: bool
    busy_s: float
    waiting_s: float
    peak: int


class Load(NamedTuple):
    """The queue at one moment, and its totals so far. ``idle_s``: the time without any call in it."""

    limit: int
    waiting: int
    under_way: int
    completed: int
    busy_s: float
    idle_s: float


class CallQueue:
    """At most ``limit`` calls under way; those that wait go in the order of their tasks, then of their arrival."""

    def __init__(self, limit: int, now_s: float) -> None:
        self.limit = limit
        self._waiting: list[tuple[Task, int, QueuePlace]] = []
        self._under_way: set[QueuePlace] = set()
        self._joined = self._completed = self._peak = 0
        self._counted_s = now_s  # up to when time has been counted
        self._busy_s = self._idle_s = 0.0
        self._since = (0.0, 0.0)  # busy and waiting seconds since the last completion

    def load(self, now_s: float) -> Load:
        """The queue now, and its totals."""
        self._count_time(now_s)
        waiting, under_way = len(self._waiting), len(self._under_way)
        return Load(self.limit, waiting, under_way, self._completed, self._busy_s, self._idle_s)

    def add(
        self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None], now_s: float
    ) -> None:
        """Add a call."""
        self._count_time(now_s)
        heapq.heappush(self._waiting, (call.task, self._joined, QueuePlace(call, done, failed, now_s)))
        self._joined += 1

    def take_ready(self, now_s: float) -> list[QueuePlace]:
        """Remove and return the calls to submit now; they count as in flight."""
        self._count_time(now_s)
        gone = []
        while self._waiting and len(self._under_way) < self.limit:
            place = heapq.heappop(self._waiting)[2]
            place.launched_s = now_s
            self._under_way.add(place)
            gone.append(place)
        self._peak = max(self._peak, len(self._under_way))
        return gone

    def remove(self, place: QueuePlace, now_s: float) -> bool:
        """Note that a call is no longer in flight; False if it was not, or the queue is cleared."""
        self._count_time(now_s)
        if place not in self._under_way:
            return False
        self._under_way.remove(place)
        return True

    def completed(self, place: QueuePlace, now_s: float) -> Completion:
        """The completion of a call that has left because it was answered."""
        busy_s, waiting_s = self._since
        peak, self._peak = self._peak, len(self._under_way)
        self._since = (0.0, 0.0)
        self._completed += 1
        call, waited = place.call, place.launched_s > place.joined_s
        # Steps of training and of evaluation have the same numbers: only their bodies differ.
        kind = (call.task.step, call.mode, call.body)
        return Completion(kind, call.task.interval, place.launched_s, now_s, waited, busy_s, waiting_s, peak)

    def drop(self, calls: Collection[Call], now_s: float) -> list[Call]:
        """Remove these calls from the queue; returns those that were in flight."""
        self._count_time(now_s)
        ids = {id(call) for call in calls}
        gone = [place for place in self._under_way if id(place.call) in ids]
        for place in gone:
            place.dropped = True
        self._under_way.difference_update(gone)
        self._waiting = [each for each in self._waiting if id(each[2].call) not in ids]
        heapq.heapify(self._waiting)
        return [place.call for place in gone]

    def clear(self) -> None:
        """Remove all calls."""
        self._waiting.clear()
        self._under_way.clear()

    def _count_time(self, now_s: float) -> None:
        passed_s, self._counted_s = now_s - self._counted_s, now_s
        if self._waiting or self._under_way:
            self._busy_s += passed_s
            busy_s, waiting_s = self._since
            self._since = (busy_s + passed_s, waiting_s + passed_s * len(self._waiting))
        else:
            self._idle_s += passed_s


class LimitedPool:
    """A pool around a pool: it never has more than ``limit`` calls at a time.

    ``watch`` is called for every call that was answered, in the thread that answers, after the answer and before the
    next call goes. It may change the limit.
    """

    def __init__(
        self,
        inner: TensorPool,
        limit: int,
        clock: Clock | None = None,
        watch: Callable[[Completion], None] | None = None,
    ) -> None:
        self._inner, self._watch = inner, watch
        self._clock: Clock = clock or RealClock()  # only its time is read: it starts no thread
        self._queue = CallQueue(_checked(limit), self._clock.now())
        self._callbacks = CallbackQueue()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def limit(self) -> int:
        """How many calls may be under way."""
        return self._queue.limit

    @property
    def load(self) -> Load:
        """How many calls wait and are under way now, and totals so far."""
        with self._lock:
            return self._queue.load(self._clock.now())

    def set_limit(self, limit: int) -> None:
        """Change the limit. Calls in flight continue, also if they are more than the new limit."""
        with self._lock:
            self._queue.limit = _checked(limit)
        self._launch_ready()

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        """Take a call: submitted now, or when its turn comes."""
        with self._lock:
            if self._closed:
                raise TrainingError(f"{name_of(call)} was submitted to a pool that is closed: make another pool.")
            now_s = self._clock.now()  # read once: a call that is submitted now has not waited
            self._queue.add(call, done, failed, now_s)
            gone = self._queue.take_ready(now_s)
        self._launch_all(gone)

    def cancel(self, calls: Collection[Call]) -> None:
        """Cancel these calls: those that wait are not submitted, and the others no longer count as in flight."""
        with self._lock:
            under_way = self._queue.drop(calls, self._clock.now())
        self._inner.cancel(under_way)
        self._launch_ready()

    def close(self) -> None:
        """Stop; waiting calls are dropped."""
        with self._lock:
            self._closed = True
            self._queue.clear()
        self._callbacks.close()
        self._inner.close()

    def _launch_ready(self) -> None:
        with self._lock:
            gone = self._queue.take_ready(self._clock.now())
        self._launch_all(gone)

    def _launch_all(self, gone: list[QueuePlace]) -> None:
        self._callbacks.run([partial(self._launch, place) for place in gone])

    def _launch(self, place: QueuePlace) -> None:
        if self._closed or place.dropped:
            return
        try:
            self._inner.submit(place.call, partial(self._done, place), partial(self._failed, place))
        except Exception as error:
            self._failed(place, error)
        if place.dropped:  # cancelled during submit, perhaps before the inner pool had it
            self._inner.cancel([place.call])

    def _done(self, place: QueuePlace, reply: Reply) -> None:
        with self._lock:
            now_s = self._clock.now()
            if not self._queue.remove(place, now_s):
                return
            completion = self._queue.completed(place, now_s)
        callbacks: list[Callback] = [partial(self._callbacks.answer, partial(place.done, reply))]
        if self._watch is not None:
            callbacks.append(partial(self._watch, completion))
        self._callbacks.run([*callbacks, self._launch_ready])

    def _failed(self, place: QueuePlace, error: BaseException) -> None:
        with self._lock:
            if not self._queue.remove(place, self._clock.now()):
                return
        self._callbacks.run([partial(self._callbacks.answer, partial(place.failed, error)), self._launch_ready])


def _checked(limit: int) -> int:
    if limit < 1:
        raise ConfigError(f"limit={limit}: at least one call must be allowed under way, or none would ever end.")
    return limit
