"""A clock with timers, and a queue of callbacks, for wrappers of pools.

:class:`CallbackQueue` runs what a wrapper decided under its lock, after the lock is released: an answer may submit the
next call. Tests move a :class:`ManualClock` by hand.
"""

import heapq
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Protocol

_JOIN_S = 10.0  # how long a closing clock waits for the callback in progress
Callback = Callable[[], None]
_CLOSE_S = 10.0  # how long a closing wrapper waits for callbacks in other threads


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Do not make the call; no effect if it has been made."""


class Clock(Protocol):
    """A monotonic clock, and calls at later times."""

    def now(self) -> float:
        """Seconds since some moment."""

    def call_later(self, delay_s: float, fn: Callable[[], None]) -> Timer:
        """Call ``fn`` once, ``delay_s`` from now, in the clock's thread; immediately if that time is past."""


class _Scheduled:
    """A scheduled call, ordered by ``when_s``, then by the order of requests."""

    __slots__ = ("fn", "number", "when_s")

    def __init__(self, when_s: float, number: int, fn: Callable[[], None]) -> None:
        self.when_s, self.number = when_s, number
        self.fn: Callable[[], None] | None = fn

    def __lt__(self, other: "_Scheduled") -> bool:
        return (self.when_s, self.number) < (other.when_s, other.number)

    def cancel(self) -> None:
        self.fn = None  # stays in the heap until its time, but references nothing


class RealClock:
    """The machine's clock; one thread, started by the first :meth:`call_later`, makes all calls one after another.

    Callbacks must not block for long. Their errors go to ``threading.excepthook``, and the thread continues.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: list[_Scheduled] = []
        self._numbers = count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def call_later(self, delay_s: float, fn: Callable[[], None]) -> Timer:
        """Call ``fn`` in the timer's thread; never, if the clock is closed before."""
        entry = _Scheduled(self.now() + delay_s, next(self._numbers), fn)
        with self._changed:
            if self._closed:
                return entry
            heapq.heappush(self._entries, entry)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dorylus-timer", daemon=True)
                self._thread.start()
            elif self._entries[0] is entry:
                self._changed.notify()
        return entry

    def close(self) -> None:
        """Drop all scheduled calls and stop the thread once its current callback has returned."""
        with self._changed:
            self._closed = True
            self._entries.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)

    def _run(self) -> None:
        while (entry := self._next()) is not None:
            fn, entry.fn = entry.fn, None
            if fn is not None:
                try:
                    fn()
                except Exception:
                    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
                del fn  # an idle thread references nothing

    def _next(self) -> _Scheduled | None:
        """Wait for the next call that is due; None once the clock is closed."""
        with self._changed:
            while not self._closed:
                wait_s = self._entries[0].when_s - self.now() if self._entries else None
                if wait_s is not None and wait_s <= 0:
                    return heapq.heappop(self._entries)
                self._changed.wait(None if wait_s is None else min(wait_s, threading.TIMEOUT_MAX))
            return None


class ManualClock:
    """A clock that stands still until it is moved; calls are made in the thread that moves it, in order of time."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s
        self._entries: list[_Scheduled] = []
        self._numbers = count()
        self._lock = threading.Lock()

    def now(self) -> float:
        """The time it has been moved to."""
        return self._now_s

    def call_later(self, delay_s: float, fn: Callable[[], None]) -> Timer:
        """Call ``fn`` when the clock is moved that far."""
        entry = _Scheduled(self._now_s + max(delay_s, 0.0), next(self._numbers), fn)
        with self._lock:
            heapq.heappush(self._entries, entry)
        return entry

    def next_s(self) -> float | None:
        """When the next call is due; None when there is none."""
        with self._lock:
            while self._entries and self._entries[0].fn is None:
                heapq.heappop(self._entries)
            return self._entries[0].when_s if self._entries else None

    def step(self) -> bool:
        """Move to the next call and make it; False when there is none."""
        if self.next_s() is None:
            return False
        with self._lock:
            entry = heapq.heappop(self._entries)
        fn, entry.fn = entry.fn, None
        self._now_s = max(self._now_s, entry.when_s)
        if fn is not None:
            fn()
        return True

    def advance(self, seconds: float) -> None:
        """Move forward by so much; calls that are due are made at their times, also those scheduled during the move."""
        until_s = self._now_s + seconds
        while (due_s := self.next_s()) is not None and due_s <= until_s:
            self.step()
        self._now_s = max(self._now_s, until_s)


class CallbackQueue:
    """Runs callbacks one after another, each thread its own. Once closed it runs no answer."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._changed = threading.Condition()
        self._answering: dict[int, int] = {}  # threads in a callback, and how deeply nested
        self._closed = False

    def run(self, callbacks: Iterable[Callback]) -> None:
        """Run these callbacks; if called inside a callback, after it. All are run, then the first error is raised."""
        waiting: deque[Callback] | None = getattr(self._own, "waiting", None)
        if waiting is not None:
            waiting.extend(callbacks)
            return
        self._own.waiting = waiting = deque(callbacks)
        first: Exception | None = None
        try:
            while waiting:
                try:
                    waiting.popleft()()
                except Exception as error:
                    first = first or error
        finally:
            self._own.waiting = None
        if first is not None:
            raise first

    def answer(self, callback: Callback) -> None:
        """Run a callback that answers a caller, unless closed."""
        me = threading.get_ident()
        with self._changed:
            if self._closed:
                return
            self._answering[me] = self._answering.get(me, 0) + 1
        try:
            callback()
        finally:
            with self._changed:
                self._answering[me] -= 1
                if not self._answering[me]:
                    del self._answering[me]
                    self._changed.notify_all()

    def close(self) -> None:
        """No answer is run after this; waits for those in progress in other threads."""
        me = threading.get_ident()
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._answering.keys() - {me}, _CLOSE_S)
