"""Frames between the servers of a run: one connection in each direction, in order, with bounded queues.

A server listens as soon as its transport is made. A session begins with :meth:`PeerTransport.open` on every
server and then :meth:`PeerTransport.connect`; the next session drops the connections of the one before, and the frames
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

WAITING_BYTES: Final = 64 << 20  # that may wait for one peer before the posting thread blocks
_END_S: Final = 5.0  # for a thread to end
_MAX_UNPROVEN: Final = 512  # connections that have not proved themselves, at a time

Received = Callable[[int, Frame], None]  # (peer, frame), in the order the peer posted
ConnectionLost = Callable[[int, str], None]  # (peer, why)


class PeerTransport:
    """One server's connections to all others.

    ``received`` is called by the thread that reads a connection: while it runs, the connection is not read, and in the
    end its sender blocks. ``lost`` is called when a connection of the session breaks; the session is over then, for
    this server. ``sent_bytes`` counts the bytes of all frames sent since the transport was made.
    """

    def __init__(self, host: str, secret: bytes, me: int, *, limits: FrameLimits = DEFAULT) -> None:
        self._secret, self._me, self._limits = secret, me, limits
        self._listener = socket.create_server((host, 0), backlog=256)
        self.address: tuple[str, int] = (host, int(self._listener.getsockname()[1]))
        self._lock = threading.Lock()
        # connections that have not proved themselves, oldest first, and their hosts
        self._unproven: dict[socket.socket, str] = {}
        self._readers: set[threading.Thread] = set()  # of all connections that were accepted
        self._session: _Session | None = None
        self._closed = False
        self.refused = self.sent_bytes = 0
        self._thread = threading.Thread(target=self._accept, name="dorylus-peers", daemon=True)
        self._thread.start()

    def open(self, session: int, received: Received, lost: ConnectionLost) -> None:
        """Begin a session: peers that dial for it are answered from now on."""
        self.disconnect()
        with self._lock:
            self._session = _Session(session, received, lost, self._count)

    def connect(self, addresses: Mapping[int, tuple[str, int]], number: int | None = None) -> None:
        """Dial all peers, which have opened the session; :class:`WireError` names one that cannot be reached."""
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
        """Queue a frame for a peer, after those posted before. The arrays must not be written to afterwards.

        Blocks for up to ``timeout_s`` while the queue is full; with None the frame is queued in any case.
        ``number`` is the session it belongs to; a frame of a session that is over is refused.
        """
        self._current(number).post(peer, pack(header, arrays, self._limits), timeout_s)

    def disconnect(self, number: int | None = None) -> None:
        """End the session, if one is open and, where a number is given, it has that number."""
        with self._lock:
            session = self._session
            if session is None or number not in (None, session.number):
                return
            self._session = None
        session.close()

    def close(self) -> None:
        """Stop listening and end the session."""
        with self._lock:
            self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(_END_S)
        self._listener.close()
        with self._lock:
            for link in self._unproven:
                _shut(link)
            readers = self._readers - {threading.current_thread()}
        self.disconnect()
        for reader in readers:
            reader.join(_END_S)

    def _count(self, num_bytes: int) -> None:
        with self._lock:
            self.sent_bytes += num_bytes

    def _current(self, number: int | None) -> "_Session":
        session = self._session
        if session is None:
            raise WireError("no session is open: its connections are lost, or it has not begun.")
        if number not in (None, session.number):
            self.refused += 1
            raise WireError(
                f"session {number} is over: its connections are closed. Session {session.number} has begun since."
            )
        return session

    def _accept(self) -> None:
        while not self._closed:
            try:
                link, (host, *_) = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.05)  # for example too many open files
                continue
            reader = threading.Thread(target=self._read, args=(link,), name="dorylus-peer-receive", daemon=True)
            with self._lock:
                if self._closed:
                    link.close()
                    return
                if len(self._unproven) >= _MAX_UNPROVEN:
                    _shut(self._drop_unproven())
                self._unproven[link] = host
                self._readers.add(reader)
            try:
                reader.start()
            except RuntimeError:  # no thread can be started: the peer may dial again
                with self._lock:
                    self._unproven.pop(link, None)
                    self._readers.discard(reader)
                link.close()

    def _drop_unproven(self) -> socket.socket:
        """Under the lock: remove and return the oldest unproven connection of the host that has the most of them.

        A peer proves itself within a round trip. It is dropped only if as many other connections as are allowed come in
        meanwhile, and if no other host has more unproven connections than its own.
        """
        of_host = Counter(self._unproven.values())
        most = max(of_host.values())
        dropped = next(link for link, host in self._unproven.items() if of_host[host] == most)
        del self._unproven[dropped]
        return dropped

    def _read(self, link: socket.socket) -> None:
        """Answer a connection, then pass its frames on until it ends."""
        try:
            self._answer(link)
        finally:
            with self._lock:
                self._readers.discard(threading.current_thread())

    def _answer(self, link: socket.socket) -> None:
        session = self._session
        try:
            connection = answer(link, self._secret, -1 if session is None else session.number, self._me, self._limits)
        except (WireError, OSError, EOFError):
            self.refused += 1
            link.close()
            return
        finally:
            with self._lock:
                self._unproven.pop(link, None)
        assert session is not None
        session.read(connection)


def _shut(link: socket.socket) -> None:
    """Shut a socket down; the thread that reads from it closes it."""
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)


class _Session:
    """The connections of one session."""

    def __init__(self, number: int, received: Received, lost: ConnectionLost, count: Callable[[int], None]) -> None:
        self.number = number
        self._received, self._lost, self._count = received, lost, count
        self._lock = threading.Lock()
        self._connections: list[Connection] = []
        self._readers: list[threading.Thread] = []
        self._queues: dict[int, _SendQueue] = {}
        self._over = False

    def add_outgoing(self, connection: Connection) -> None:
        self._keep(connection)
        self._queues[connection.peer] = _SendQueue(connection, self._broke, self._count)

    def post(self, peer: int, parts: list[Buffer], timeout_s: float | None) -> None:
        self._queues[peer].add(parts, timeout_s)

    def read(self, connection: Connection) -> None:
        """Pass every frame of a connection to ``received``, until the connection ends."""
        self._keep(connection, threading.current_thread())
        try:
            while True:
                self._received(connection.peer, connection.receive())
        except (OSError, EOFError, FrameError) as why:
            self._broke(connection.peer, str(why) or type(why).__name__)

    def close(self) -> None:
        with self._lock:
            self._over = True
            connections, self._connections = self._connections, []
        for queue in self._queues.values():
            queue.close()
        for connection in connections:
            connection.close()
        for thread in [*self._readers, *(queue.thread for queue in self._queues.values())]:
            if thread is not threading.current_thread():
                thread.join(_END_S)

    def _keep(self, connection: Connection, reader: threading.Thread | None = None) -> None:
        with self._lock:
            if not self._over:
                self._connections.append(connection)
                self._readers += [] if reader is None else [reader]
                return
        connection.close()

    def _broke(self, peer: int, why: str) -> None:
        with self._lock:
            was_over, self._over = self._over, True
        if not was_over:
            self._lost(peer, why)


class _SendQueue:
    """Frames for one peer, and the thread that sends them."""

    def __init__(self, connection: Connection, broke: ConnectionLost, count: Callable[[int], None]) -> None:
        self._connection, self._broke, self._count = connection, broke, count
        self._changed = threading.Condition()
        self._waiting: deque[list[Buffer]] = deque()
        self._waiting_bytes = 0
        self._closed = False
        self.thread = threading.Thread(target=self._send, name=f"dorylus-peer-send-{connection.peer}", daemon=True)
        self.thread.start()

    def add(self, parts: list[Buffer], timeout_s: float | None) -> None:
        size = frame_bytes(parts)
        with self._changed:
            if timeout_s is not None and not self._changed.wait_for(self._has_room, timeout_s):
                raise WireError(f"the connection to server {self._connection.peer} sent nothing for {timeout_s:g} s.")
            if self._closed:
                raise WireError(f"the connection to server {self._connection.peer} is lost.")
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
                self._connection.send(parts)
            except OSError as why:
                self.close()
                self._broke(self._connection.peer, str(why))
                return
            size = frame_bytes(parts)
            self._count(size)
            with self._changed:
                if self._waiting:
                    self._waiting.popleft()
                self._waiting_bytes -= size
                self._changed.notify_all()
