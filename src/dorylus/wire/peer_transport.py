"""Mail between servers: frames to any peer, over one line in each direction, in order, with bounded queues.

A server listens from the moment its transport is made. A session begins with :meth:`PeerTransport.open` on every
server and then :meth:`PeerTransport.connect`; the next session drops the connections of the one before, and what was
in flight.
"""

import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from numpy.typing import NDArray

from dorylus.wire.connection import Connection, answer, dial
from dorylus.wire.frames import DEFAULT, Buffer, Frame, FrameError, FrameLimits, WireError, frame_bytes, pack

WAITING_BYTES: Final = 64 << 20  # that may wait for one peer before whoever posts has to
_END_S: Final = 5.0  # for a thread to end
_STRANGERS: Final = 512  # connections that have not proved themselves, at a time

Received = Callable[[int, Frame], None]  # (peer, frame), in the order the peer posted
Lost = Callable[[int, str], None]  # (peer, why)


class PeerTransport:
    """One server's lines to all others.

    ``received`` is called by the thread that reads a line: the line waits meanwhile, and so in the end does its sender.
    ``lost`` is told when a line of the session breaks; the session is over then, for this server. ``sent_bytes`` counts
    what lines have taken, frames and all, since the room was made.
    """

    def __init__(self, host: str, secret: bytes, me: int, *, limits: FrameLimits = DEFAULT) -> None:
        self._secret, self._me, self._limits = secret, me, limits
        self._listener = socket.create_server((host, 0), backlog=256)
        self.address: tuple[str, int] = (host, int(self._listener.getsockname()[1]))
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, str] = {}  # who dialled and has not proved itself, oldest first: its host
        self._session: _Session | None = None
        self._closed = False
        self.refused = self.sent_bytes = 0
        self._thread = threading.Thread(target=self._welcome, name="dorylus-mail", daemon=True)
        self._thread.start()

    def open(self, session: int, received: Received, lost: Lost) -> None:
        """Begin a session: lines of peers that dial for it are answered from now on."""
        self.hang_up()
        with self._lock:
            self._session = _Session(session, received, lost, self._count)

    def connect(self, addresses: Mapping[int, tuple[str, int]], number: int | None = None) -> None:
        """Dial all peers, which have opened the session; :class:`WireError` says who is not there."""
        session = self._current(number)
        for peer, address in addresses.items():
            if peer != self._me:
                session.add_outgoing(dial(address, self._secret, session.number, self._me, peer, self._limits))

    def post(
        self,
        peer: int,
        header: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        timeout_s: float | None,
        number: int | None = None,
    ) -> None:
        """Have a frame sent, after those posted before; nobody writes to the arrays later.

        Waits while too much waits, for as long as it may; with None it is added all the same, and nobody waits.
        ``number``: the session it belongs to; refused once that is over.
        """
        self._current(number).post(peer, pack(header, arrays, self._limits), timeout_s)

    def hang_up(self, number: int | None = None) -> None:
        """End the session, if there is one, and it is this one where a number is given."""
        with self._lock:
            session = self._session
            if session is None or number not in (None, session.number):
                return
            self._session = None
        session.close()

    def close(self) -> None:
        """Stop listening and hang up."""
        with self._lock:
            self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(_END_S)
        self._listener.close()
        with self._lock:
            for link in self._strangers:
                _shut(link)
        self.hang_up()

    def _count(self, num_bytes: int) -> None:
        with self._lock:
            self.sent_bytes += num_bytes

    def _current(self, number: int | None) -> "_Session":
        session = self._session
        if session is None:
            raise WireError("no session is open: its lines are lost, or it has not begun.")
        if number not in (None, session.number):
            self.refused += 1
            raise WireError(f"session {number} is over: its lines are lost. Session {session.number} has begun since.")
        return session

    def _welcome(self) -> None:
        while not self._closed:
            try:
                link, (host, *_) = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.05)  # too many open files, say
                continue
            with self._lock:
                if self._closed:
                    link.close()
                    return
                if len(self._strangers) >= _STRANGERS:
                    _shut(self._give_up())
                self._strangers[link] = host
            try:
                threading.Thread(target=self._answer, args=(link,), name="dorylus-mail-in", daemon=True).start()
            except RuntimeError:  # no more threads for now: whoever dialled may try again, and others still may
                with self._lock:
                    self._strangers.pop(link, None)
                link.close()

    def _give_up(self) -> socket.socket:
        """Under the lock: the stranger that makes room for another, the oldest of the host that has the most.

        A peer proves itself within a round trip. It is given up only if as many others dial meanwhile as are waited
        for, and of another host's strangers only if these are no more than its own.
        """
        of_host = Counter(self._strangers.values())
        most = max(of_host.values())
        given_up = next(link for link, host in self._strangers.items() if of_host[host] == most)
        del self._strangers[given_up]
        return given_up

    def _answer(self, link: socket.socket) -> None:
        session = self._session
        try:
            line = answer(link, self._secret, -1 if session is None else session.number, self._me, self._limits)
        except (WireError, OSError, EOFError):
            self.refused += 1
            link.close()
            return
        finally:
            with self._lock:
                self._strangers.pop(link, None)
        assert session is not None
        session.read(line)


def _shut(link: socket.socket) -> None:
    """End a connection; the thread that reads from it closes it."""
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)


class _Session:
    """The lines of one session."""

    def __init__(self, number: int, received: Received, lost: Lost, count: Callable[[int], None]) -> None:
        self.number = number
        self._received, self._lost, self._count = received, lost, count
        self._lock = threading.Lock()
        self._lines: list[Connection] = []
        self._readers: list[threading.Thread] = []
        self._outboxes: dict[int, _Outbox] = {}
        self._over = False

    def add_outgoing(self, line: Connection) -> None:
        self._keep(line)
        self._outboxes[line.peer] = _Outbox(line, self._broke, self._count)

    def post(self, peer: int, parts: list[Buffer], timeout_s: float | None) -> None:
        self._outboxes[peer].add(parts, timeout_s)

    def read(self, line: Connection) -> None:
        """Hand on what a line brings, until it brings no more."""
        self._keep(line, threading.current_thread())
        try:
            while True:
                self._received(line.peer, line.receive())
        except (OSError, EOFError, FrameError) as why:
            self._broke(line.peer, str(why) or type(why).__name__)

    def close(self) -> None:
        with self._lock:
            self._over = True
            lines, self._lines = self._lines, []
        for outbox in self._outboxes.values():
            outbox.close()
        for line in lines:
            line.close()
        for thread in [*self._readers, *(outbox.thread for outbox in self._outboxes.values())]:
            if thread is not threading.current_thread():
                thread.join(_END_S)

    def _keep(self, line: Connection, reader: threading.Thread | None = None) -> None:
        with self._lock:
            if not self._over:
                self._lines.append(line)
                self._readers += [] if reader is None else [reader]
                return
        line.close()

    def _broke(self, peer: int, why: str) -> None:
        with self._lock:
            told, self._over = self._over, True
        if not told:
            self._lost(peer, why)


class _Outbox:
    """Frames for one peer, and the thread that sends them."""

    def __init__(self, line: Connection, broke: Lost, count: Callable[[int], None]) -> None:
        self._line, self._broke, self._count = line, broke, count
        self._changed = threading.Condition()
        self._waiting: deque[list[Buffer]] = deque()
        self._waiting_bytes = 0
        self._closed = False
        self.thread = threading.Thread(target=self._send, name=f"dorylus-mail-{line.peer}", daemon=True)
        self.thread.start()

    def add(self, parts: list[Buffer], timeout_s: float | None) -> None:
        size = frame_bytes(parts)
        with self._changed:
            if timeout_s is not None and not self._changed.wait_for(self._has_room, timeout_s):
                raise WireError(f"the line to server {self._line.peer} took nothing for {timeout_s:g} s.")
            if self._closed:
                raise WireError(f"the line to server {self._line.peer} is lost.")
            self._waiting.append(parts)
            self._waiting_bytes += size
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def _has_room(self) -> bool:
        return self._closed or self._waiting_bytes < WAITING_BYTES

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or bool(self._waiting))
                if self._closed:
                    return
                parts = self._waiting[0]
            try:
                self._line.send(parts)
            except OSError as why:
                self.close()
                self._broke(self._line.peer, str(why))
                return
            size = frame_bytes(parts)
            self._count(size)
            with self._changed:
                if self._waiting:
                    self._waiting.popleft()
                self._waiting_bytes -= size
                self._changed.notify_all()
