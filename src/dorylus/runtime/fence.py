"""Sessions as fencing tokens, and leases: they isolate a server from earlier sessions and from a lost driver.

A server is in one session; messages of any other are refused and counted. The driver begins a session at the start of a
run and after every fault; its number is higher than all before. Every message between driver, graph servers and
parameter servers names its session. So a late task or message changes nothing in the next session. A server that
receives no request of its driver for `LEASE_S` seconds ends its process.
"""

import os
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import count

from dorylus.errors import TrainingError
from dorylus.pools import TensorPool
from dorylus.saga import Call, Reply


class PeerLostError(TrainingError):
    """A server that this one exchanges rows with is lost, or the connection to it."""


class OtherSessionError(PeerLostError):
    """A message of a session that the server is not in."""


class Fence:
    """The session that a server is in, its messages in progress, and how many messages were refused."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._changed = threading.Condition()
        self._session = 0  # none has begun
        self._inside: dict[int, int] = {}  # by session: messages in progress
        self._refused = 0

    def enter(self, session: int) -> None:
        """Begin a session, which must be newer than the last: messages of other sessions are refused from now on."""
        with self._changed:
            if session <= self._session:
                raise self._refusal(session, "begin")
            self._session = session
            self._changed.notify_all()

    def within(self, session: int, what: str) -> "_FencedMessage":
        """Process a message in a ``with`` block; refused unless the server is in the message's session."""
        return _FencedMessage(self, session, what)

    def _begin_message(self, session: int, what: str) -> None:
        with self._changed:
            if session != self._session:
                raise self._refusal(session, what)
            self._inside[session] = self._inside.get(session, 0) + 1

    def _end_message(self, session: int) -> None:
        with self._changed:
            self._inside[session] -= 1
            if not self._inside[session]:
                del self._inside[session]
            if session != self._session:  # a later session may wait for this message to end
                self._changed.notify_all()

    def is_in(self, session: int) -> bool:
        """Whether this is still the server's session."""
        return session == self._session

    def wait_for_earlier(self, session: int, timeout_s: float) -> bool:
        """Wait until no message of an earlier session is in progress; False if that takes longer than ``timeout_s``.

        Refused as soon as a later session begins.
        """
        with self._changed:
            self._changed.wait_for(lambda: session != self._session or not self._has_earlier(session), timeout_s)
            if session != self._session:
                raise self._refusal(session, "begin")
            return not self._has_earlier(session)

    def take_refused(self) -> int:
        """How many messages were refused since the last call."""
        with self._changed:
            refused, self._refused = self._refused, 0
            return refused

    def _has_earlier(self, session: int) -> bool:
        return any(each < session for each in self._inside)

    def _refusal(self, session: int, what: str) -> OtherSessionError:
        """Count a refused message; returns the error."""
        self._refused += 1
        now = f"is in session {self._session}" if self._session else "has begun no session since it was started"
        return OtherSessionError(f"{what!r} of session {session} is refused: {self._server} {now}.")


class _FencedMessage:
    """A message in progress. Not a generator, which would be slow: there is one for every task."""

    __slots__ = ("_fence", "_session", "_what")

    def __init__(self, fence: Fence, session: int, what: str) -> None:
        self._fence, self._session, self._what = fence, session, what

    def __enter__(self) -> None:
        self._fence._begin_message(self._session, self._what)

    def __exit__(self, *_: object) -> None:
        self._fence._end_message(self._session)


class SessionTasks:
    """A pool as one session uses it: when the session ends, its calls are cancelled and later replies dropped.

    The pool holds no reference to the receiver of a reply, so a session's memory can be freed before its last reply.
    """

    def __init__(self, pool: TensorPool, fence: Fence, session: int) -> None:
        self._pool, self._fence, self._session = pool, fence, session
        self._numbers, self._lock, self._closed = count(), threading.Lock(), False
        self._waiting: dict[int, tuple[Call, tuple[Callable[[Reply], None], Callable[[BaseException], None]]]] = {}

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        """Submit a call to the pool; refused once the session is over."""
        with self._lock:
            if self._closed:
                raise OtherSessionError(f"session {self._session} is over: no call is submitted for it.")
            number = next(self._numbers)
            self._waiting[number] = call, (done, failed)
        self._pool.submit(call, lambda reply: self._answer(number, 0, reply), lambda why: self._answer(number, 1, why))
        if self._closed:  # closed during submit: close() may not have found this call
            self._pool.cancel([call])

    def cancel(self, calls: Collection[Call]) -> None:
        """Cancel these calls on the pool."""
        self._pool.cancel(calls)

    def close(self) -> None:
        """Cancel all calls and drop their receivers; the pool is shared by all sessions and stays open."""
        with self._lock:
            self._closed = True
            calls = [call for call, _ in self._waiting.values()]
            self._waiting.clear()
        if calls:
            self._pool.cancel(calls)

    def _answer(self, number: int, which: int, answer: object) -> None:
        with suppress(OtherSessionError), self._fence.within(self._session, "reply of a pool"):
            waiting = self._waiting.pop(number, None)
            if waiting is not None:
                waiting[1][which](answer)  # type: ignore[arg-type]


LEASE_S = 90.0
RENEW_S = 15.0
_CHECK_S = 5.0


def _end_process() -> None:
    os._exit(1)


class Lease:
    """A server's side: every request renews the lease."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, end: Callable[[], None] = _end_process) -> None:
        self._clock, self._end = clock, end
        self._renewed_s = clock()

    def renew(self) -> None:
        """Note a request of the driver."""
        self._renewed_s = self._clock()

    def check(self) -> None:
        """End the process if the lease was not renewed for LEASE_S."""
        if self._clock() - self._renewed_s > LEASE_S:
            self._end()

    def watch(self) -> None:
        """Check from now on, in a thread."""
        threading.Thread(target=self._keep_checking, name="dorylus-lease", daemon=True).start()

    def _keep_checking(self) -> None:
        while True:
            time.sleep(_CHECK_S)
            self.check()


class Renewal:
    """The driver's side: renews until it is closed. ``renew`` must not wait for the servers."""

    def __init__(self, renew: Callable[[], None], every_s: float = RENEW_S) -> None:
        self._renew, self._every_s = renew, every_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_renewing, name="dorylus-renewal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop renewing."""
        self._closed.set()
        self._thread.join(RENEW_S)
        self._renew = lambda: None  # breaks the cycle of references, so that the servers are freed now

    def _keep_renewing(self) -> None:
        while not self._closed.wait(self._every_s):
            self._renew()
