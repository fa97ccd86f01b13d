"""Retries calls of any pool: time-outs, losses, throttling, and a service that is down.

:class:`Attempts` makes the decisions, without a clock, thread or pool. This module passes events to it, one at a time,
and carries out its actions.
"""

import threading
from collections.abc import Callable, Collection
from functools import partial
from math import inf
from random import Random

from dorylus.errors import TrainingError
from dorylus.pools.attempts import Action, Attempt, Attempts, Cancel, Complete, Launch, RelaunchCounts
from dorylus.pools.clock import Callback, CallbackQueue, Clock, RealClock, Timer
from dorylus.pools.pacing import Policy
from dorylus.pools.pool import TensorPool, name_of
from dorylus.saga import Call, Reply


class Relaunching:
    """A pool around a pool: each call is retried until it is answered, within the policy; the first answer counts.

    A call may be submitted again while earlier attempts are in flight; these are not cancelled. The inner pool may
    answer in any thread, immediately, twice, or never. A clock that is passed in is not closed here.
    """

    def __init__(
        self,
        inner: TensorPool,
        policy: Policy | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._inner = inner
        self._own_clock = RealClock() if clock is None else None
        self._clock: Clock = clock or self._own_clock or RealClock()
        self._attempts = Attempts(policy or Policy(), random or Random(0))
        self._callbacks = CallbackQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._timer: Timer | None = None
        self._due_s = inf  # when the timer fires

    @property
    def counts(self) -> RelaunchCounts:
        """The counts so far."""
        with self._lock:
            return self._attempts.counts

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        """Take a call, which is answered exactly once."""
        self._handle(partial(self._submitted, call, done, failed))

    def cancel(self, calls: Collection[Call]) -> None:
        """Cancel these calls: they are not retried, and the inner pool cancels their attempts."""
        self._handle(partial(self._attempts.cancel, calls))

    def close(self) -> None:
        """Stop; later reports of the inner pool are dropped."""
        with self._lock:
            self._closed = True
            self._attempts.close()
            self._set_timer(inf)
        self._callbacks.close()
        self._inner.close()
        if self._own_clock is not None:
            self._own_clock.close()

    def _handle(self, event: Callable[[float], list[Action]]) -> None:
        """Pass an event to :class:`Attempts`, and carry out the actions it returns."""
        with self._lock:
            now_s = self._clock.now()
            actions = event(now_s)
            if not self._closed:
                self._set_timer(self._attempts.wake_s())
        self._callbacks.run([self._callback(action) for action in actions])

    def _submitted(
        self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None], now_s: float
    ) -> list[Action]:
        if self._closed:
            raise TrainingError(f"{name_of(call)} was submitted to a pool that is closed: make another pool.")
        return self._attempts.submit(call, done, failed, now_s)

    def _callback(self, action: Action) -> Callback:
        if isinstance(action, Launch):
            return partial(self._launch, action.attempt, action.call)
        if isinstance(action, Complete):
            return partial(self._callbacks.answer, partial(action.ticket.done, action.reply))
        if isinstance(action, Cancel):
            return partial(self._inner.cancel, action.calls)
        return partial(self._callbacks.answer, partial(action.ticket.failed, action.error))

    def _launch(self, attempt: Attempt, call: Call) -> None:
        if self._closed or attempt.cancelled:
            return
        try:
            self._inner.submit(call, partial(self._answered, attempt), partial(self._faulted, attempt))
        except Exception as error:
            self._faulted(attempt, error)
        else:
            self._handle(partial(self._attempts.accepted, attempt))
        if attempt.cancelled:  # cancelled during submit, perhaps before the inner pool had it
            self._inner.cancel([call])

    def _answered(self, attempt: Attempt, reply: Reply) -> None:
        self._handle(partial(self._attempts.answered, attempt, reply))

    def _faulted(self, attempt: Attempt, error: BaseException) -> None:
        self._handle(partial(self._attempts.faulted, attempt, error))

    def _set_timer(self, due_s: float) -> None:
        """Under the lock. A timer that fires too early does no harm: it is set again."""
        if self._due_s <= due_s < inf:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due_s = None, due_s
        if due_s < inf:
            self._timer = self._clock.call_later(due_s - self._clock.now(), partial(self._wake, due_s))

    def _wake(self, due_s: float) -> None:
        with self._lock:
            if self._due_s == due_s:  # else a newer timer has replaced this one
                self._timer, self._due_s = None, inf
        # The clock may be early by a rounding: use the time that the timer was set to.
        self._handle(lambda now_s: self._attempts.wake(max(now_s, due_s)))
