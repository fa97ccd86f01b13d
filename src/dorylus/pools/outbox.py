"""Carries out what a wrapper decided under its lock, after it let go of the lock.

Pools call back whenever they like: from any thread, many at a time, also while a call is being submitted to them. So
whatever is carried out in answer to a call-back is not carried out inside it, but after it, by the same thread: a pool
that answers at once would otherwise nest one call in another without end.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable

Deed = Callable[[], None]

_CLOSE_S = 10.0  # how long a wrapper that closes waits for answers that other threads are just giving


class Outbox:
    """Runs deeds one after another, each thread its own. Once closed it gives no answer any more."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._changed = threading.Condition()
        self._answering: dict[int, int] = {}  # threads that are giving an answer, and how deep
        self._closed = False

    def run(self, deeds: Iterable[Deed]) -> None:
        """Carry these out; inside another deed, after it. All are carried out, then the first error is raised."""
        waiting: deque[Deed] | None = getattr(self._own, "waiting", None)
        if waiting is not None:
            waiting.extend(deeds)
            return
        self._own.waiting = waiting = deque(deeds)
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

    def answer(self, deed: Deed) -> None:
        """Carry out a deed that answers a caller, unless closed."""
        me = threading.get_ident()
        with self._changed:
            if self._closed:
                return
            self._answering[me] = self._answering.get(me, 0) + 1
        try:
            deed()
        finally:
            with self._changed:
                self._answering[me] -= 1
                if not self._answering[me]:
                    del self._answering[me]
                    self._changed.notify_all()

    def close(self) -> None:
        """No answer is given after this; waits for those that other threads are just giving."""
        me = threading.get_ident()
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._answering.keys() - {me}, _CLOSE_S)
