"""Messages through sockets: pieces out of the memory they lie in, and into memory that is waiting for them."""

from collections.abc import Set
from dataclasses import dataclass

import zmq
from zmq.utils.monitor import parse_monitor_message

from dorylus.wire.frames import Buffer
from dorylus.wire.sockets import Socket


class Unreachable(Exception):  # noqa: N818  (each side has its own way on from here)
    """A message that cannot be sent now: the other end has gone, is not there yet, or does not read."""


@dataclass(frozen=True, slots=True)
class Start:
    """The first part of a message: from which connection, by whose key, and what it says."""

    connection: bytes
    name: str
    content: Buffer


class Poller:
    """Waits until one of some sockets has something to read, or takes something to write."""

    def __init__(self, *read: Socket, write: Socket | None = None) -> None:
        self._poller = zmq.Poller()
        for socket in read:
            self._poller.register(socket, zmq.POLLIN)
        if write is not None:
            self._poller.register(write, zmq.POLLOUT)

    def wait(self, timeout_ms: int) -> Set[Socket]:
        """The sockets that are ready; none when the time has passed."""
        return {socket for socket, _ in self._poller.poll(timeout_ms)}


def receive_start(router: Socket) -> Start | None:
    """The beginning of the next message that waits at a port, if any; follow it by ``discard_rest`` in any case."""
    if not _has_message(router):
        return None
    connection = router.recv(zmq.NOBLOCK)
    part = router.recv(zmq.NOBLOCK, copy=False)
    return Start(connection, str(part.get("User-Id")), part.buffer if part.more else b"")


def receive_answer_start(dealer: Socket) -> bytes | None:
    """What the next message that waits at a client begins with, if any; follow it by ``discard_rest`` in any case."""
    return dealer.recv(zmq.NOBLOCK) if _has_message(dealer) else None


def receive_piece(socket: Socket, room: memoryview) -> int:
    """Receive the last part of a message into memory: its size, even if it did not fit; -1 if it was not the last."""
    size: int = socket.recv_into(room, flags=zmq.NOBLOCK)
    return -1 if socket.get(zmq.RCVMORE) else size


def discard_rest(socket: Socket) -> None:
    """Read the parts of a message that are left, and keep nothing."""
    while socket.get(zmq.RCVMORE):
        socket.recv_into(bytearray(1), flags=zmq.NOBLOCK)


def send_piece(socket: Socket, start: bytes, content: Buffer, connection: bytes = b"") -> None:
    """Send a message of two parts, the second without copying unless it is small. Raises :class:`Unreachable`."""
    try:
        if connection:
            socket.send(connection, zmq.NOBLOCK | zmq.SNDMORE)
        socket.send(start, zmq.NOBLOCK | zmq.SNDMORE)
        socket.send(content, zmq.NOBLOCK, copy=False)
    except zmq.ZMQError as why:
        if why.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
            raise Unreachable from None
        raise


def next_event(monitor: Socket) -> int | None:
    """The next event that waits, if any."""
    if not _has_message(monitor):
        return None
    return int(parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))["event"])


def _has_message(socket: Socket) -> bool:
    """Whether one waits: asking costs a third of what an exception does."""
    return bool(int(socket.get(zmq.EVENTS)) & zmq.POLLIN)
