"""The saboteur: an invoker around an invoker that injects faults into invocations and counts them."""

import threading
from collections import Counter
from contextlib import suppress
from itertools import count

from dorylus.pools.pool import InvocationResponse, Invoker, PoolFault, Throttled
from functions_bench.injected_faults import NOTE_BYTES, InjectedFault, Note
from functions_bench.plans import Plan


class Saboteur:
    """Invokes by the plan. A header field passes the fault to the function that has to commit it itself.

    ``late_s`` is the delay of an invocation that crawls, and of the second of two equal invocations.
    """

    def __init__(self, inner: Invoker, plan: Plan, *, late_s: float = 1.0) -> None:
        self._inner, self._plan, self._late_s = inner, plan, late_s
        limit = inner.payload_limit_bytes
        self.payload_limit_bytes = None if limit is None else limit - NOTE_BYTES
        self._lock, self._forms = threading.Lock(), count()
        self._done: Counter[InjectedFault] = Counter()
        self._invocations = 0
        self._closed = threading.Event()
        self._copies: list[threading.Thread] = []

    @property
    def invocations(self) -> int:
        """How many invocations were requested so far."""
        with self._lock:
            return self._invocations

    @property
    def done(self) -> Counter[InjectedFault]:
        """How many faults were injected so far, by kind."""
        with self._lock:
            return self._done.copy()

    def invoke(self, request: bytes, timeout_s: float) -> InvocationResponse:
        fault = self._plan.next()
        with self._lock:
            self._invocations += 1
            form = next(self._forms)
            if fault is not None:
                self._done[fault] += 1
        if fault is None:
            return self._inner.invoke(request, timeout_s)
        if fault is InjectedFault.THROTTLED:
            raise Throttled(0.01 if form % 2 else None)
        if fault is InjectedFault.TWICE:
            return self._twice(request, timeout_s, gives_second=form % 2 == 1)
        return self._inner.invoke(Note(fault, self._late_s, form).put_on(request), timeout_s)

    def close(self) -> None:
        self._closed.set()
        self._inner.close()
        for copy in self._copies:
            copy.join()

    def _twice(self, request: bytes, timeout_s: float, *, gives_second: bool) -> InvocationResponse:
        """The same invocation again, later. The answer is that of one of the two, as services do it."""
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
