"""The saboteur: an invoker around an invoker, which makes some invocations go wrong, and counts them."""

import threading
from collections import Counter
from contextlib import suppress
from itertools import count

from dorylus.pools.pool import InvocationResponse, Invoker, PoolFault, Throttled
from functions_bench.misdeeds import NOTE_BYTES, Misdeed, Note
from functions_bench.plans import Plan


class Saboteur:
    """Invokes as the plan says: what the functions must do wrong themselves, a note in the header tells them.

    ``late_s`` is how late an invocation that crawls begins, and the second one of two that should be one.
    """

    def __init__(self, inner: Invoker, plan: Plan, *, late_s: float = 1.0) -> None:
        self._inner, self._plan, self._late_s = inner, plan, late_s
        limit = inner.payload_limit_bytes
        self.payload_limit_bytes = None if limit is None else limit - NOTE_BYTES
        self._lock, self._forms = threading.Lock(), count()
        self._done: Counter[Misdeed] = Counter()
        self._invocations = 0
        self._closed = threading.Event()
        self._copies: list[threading.Thread] = []

    @property
    def invocations(self) -> int:
        """How many invocations were asked for so far."""
        with self._lock:
            return self._invocations

    @property
    def done(self) -> Counter[Misdeed]:
        """What went wrong so far, by kind."""
        with self._lock:
            return self._done.copy()

    def invoke(self, request: bytes, timeout_s: float) -> InvocationResponse:
        deed = self._plan.next()
        with self._lock:
            self._invocations += 1
            form = next(self._forms)
            if deed is not None:
                self._done[deed] += 1
        if deed is None:
            return self._inner.invoke(request, timeout_s)
        if deed is Misdeed.THROTTLED:
            raise Throttled(0.01 if form % 2 else None)
        if deed is Misdeed.TWICE:
            return self._twice(request, timeout_s, gives_second=form % 2 == 1)
        return self._inner.invoke(Note(deed, self._late_s, form).put_on(request), timeout_s)

    def close(self) -> None:
        self._closed.set()
        self._inner.close()
        for copy in self._copies:
            copy.join()

    def _twice(self, request: bytes, timeout_s: float, *, gives_second: bool) -> InvocationResponse:
        """The same invocation again, later. The answer is one or the other's, as a service may have it."""
        if gives_second:
            first = self._inner.invoke(request, timeout_s)
            return first if self._closed.is_set() else self._inner.invoke(request, timeout_s)
        copy = threading.Thread(target=self._again, args=(request, timeout_s))
        with self._lock:
            self._copies.append(copy)
        copy.start()
        return self._inner.invoke(request, timeout_s)

    def _again(self, request: bytes, timeout_s: float) -> None:
        if not self._closed.wait(self._late_s):
            with suppress(PoolFault):
                self._inner.invoke(request, timeout_s)
