"""At most so many calls under way at any pool; the others wait, in order of priority."""

import threading
from collections.abc import Callable, Collection
from functools import partial

from dorylus.errors import ConfigError, TrainingError
from dorylus.pools.clock import Clock, RealClock
from dorylus.pools.outbox import Deed, Outbox
from dorylus.pools.pool import TensorPool
from dorylus.pools.relaunching.tickets import name_of
from dorylus.pools.tuning.line import Completion, Line, Load, Place
from dorylus.saga.dense import Call, Reply


class Limited:
    """A pool around a pool: it never has more than ``limit`` calls at a time.

    ``watch`` hears of every call that was answered, in the thread that answers, after the answer was given and before
    the next call goes. It may change the limit.
    """

    def __init__(
        self,
        inner: TensorPool,
        limit: int,
        clock: Clock | None = None,
        watch: Callable[[Completion], None] | None = None,
    ) -> None:
        self._inner, self._watch = inner, watch
        self._clock: Clock = clock or RealClock()  # asked for the time only: it starts no thread
        self._line = Line(_checked(limit), self._clock.now())
        self._outbox = Outbox()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def limit(self) -> int:
        """How many calls may be under way."""
        return self._line.limit

    @property
    def load(self) -> Load:
        """How many calls wait and are under way now, and totals so far."""
        with self._lock:
            return self._line.load(self._clock.now())

    def set_limit(self, limit: int) -> None:
        """Another limit from now on. Calls that are under way stay so, also if that is too many now."""
        with self._lock:
            self._line.limit = _checked(limit)
        self._go_on()

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        """Take a call; it goes at once, or when it is its turn."""
        with self._lock:
            if self._closed:
                raise TrainingError(f"{name_of(call)} was submitted to a pool that is closed: make another pool.")
            now_s = self._clock.now()  # looked at once: a call that goes at once has not waited
            self._line.join(call, done, failed, now_s)
            gone = self._line.go(now_s)
        self._launch_all(gone)

    def cancel(self, calls: Collection[Call]) -> None:
        """Let go of these calls: those that wait do not go any more, and the places of the others are free."""
        with self._lock:
            under_way = self._line.drop(calls, self._clock.now())
        self._inner.cancel(under_way)
        self._go_on()

    def close(self) -> None:
        """Stop; calls that wait are forgotten."""
        with self._lock:
            self._closed = True
            self._line.clear()
        self._outbox.close()
        self._inner.close()

    def _go_on(self) -> None:
        with self._lock:
            gone = self._line.go(self._clock.now())
        self._launch_all(gone)

    def _launch_all(self, gone: list[Place]) -> None:
        self._outbox.run([partial(self._launch, place) for place in gone])

    def _launch(self, place: Place) -> None:
        if self._closed or place.dropped:
            return
        try:
            self._inner.submit(place.call, partial(self._done, place), partial(self._failed, place))
        except Exception as error:
            self._failed(place, error)
        if place.dropped:  # meanwhile: the pool inside may not have had it yet when it was told
            self._inner.cancel([place.call])

    def _done(self, place: Place, reply: Reply) -> None:
        with self._lock:
            now_s = self._clock.now()
            if not self._line.left(place, now_s):
                return
            completion = self._line.completed(place, now_s)
        deeds: list[Deed] = [partial(self._outbox.answer, partial(place.done, reply))]
        if self._watch is not None:
            deeds.append(partial(self._watch, completion))
        self._outbox.run([*deeds, self._go_on])

    def _failed(self, place: Place, error: BaseException) -> None:
        with self._lock:
            if not self._line.left(place, self._clock.now()):
                return
        self._outbox.run([partial(self._outbox.answer, partial(place.failed, error)), self._go_on])


def _checked(limit: int) -> int:
    if limit < 1:
        raise ConfigError(f"limit={limit}: at least one call must be allowed under way, or none would ever end.")
    return limit
