"""The right number of calls under way, found while they run."""

import threading
from collections.abc import Callable, Collection

from dorylus.pools.clock import Clock
from dorylus.pools.limited import Completion, LimitedPool, Load
from dorylus.pools.pool import TensorPool
from dorylus.pools.tuner import Tuner, TunerDecision
from dorylus.saga import Call, Reply


class Autotuned:
    """A pool around a pool: as :class:`LimitedPool`, but the limit moves to where it is best.

    ``start``: how many calls may be under way at first; ``at_most``: ever, 1000 or ``start`` if not given. ``decided``
    hears of every change, in the thread whose answer brought it about.
    """

    def __init__(
        self,
        inner: TensorPool,
        start: int,
        clock: Clock | None = None,
        decided: Callable[[TunerDecision], None] | None = None,
        *,
        at_most: int | None = None,
    ) -> None:
        self._tuner, self._decided = Tuner(start, at_most=at_most), decided
        self._limited = LimitedPool(inner, start, clock, self._completed)
        self._lock = threading.Lock()

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return self._limited.limit

    @property
    def load(self) -> Load:
        """How many calls wait and are under way now, and totals so far."""
        return self._limited.load

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        """Take a call; it goes at once, or when it is its turn."""
        self._limited.submit(call, done, failed)

    def cancel(self, calls: Collection[Call]) -> None:
        """Let go of these calls; those that wait do not go any more."""
        self._limited.cancel(calls)

    def close(self) -> None:
        """Stop; calls that wait are forgotten."""
        self._limited.close()

    def _completed(self, completion: Completion) -> None:
        with self._lock:
            decision = self._tuner.completed(completion)
            if decision is not None:
                self._limited.set_limit(decision.new)
        if decision is not None and self._decided is not None:
            self._decided(decision)
