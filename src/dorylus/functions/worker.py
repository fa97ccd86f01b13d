"""A local process that runs the handler: frames in and out over the socket it was started with as standard input.

Each message is eight bytes with its length, little-endian, then a frame. The process ends when the other end of the
socket is closed, also during a task: the process that started it may be killed.
"""

import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Final

from dorylus.functions.handler import Handler
from dorylus.wire import DEFAULT, Buffer, FrameError, pack

LENGTH: Final = struct.Struct("<Q")
IOV_MAX: Final = 512  # buffers handed to the kernel at a time


def send(link: socket.socket, parts: Sequence[Buffer], until_s: float | None = None) -> None:
    """Send a message, its parts one after the other, without joining them; by ``until_s`` of the monotonic clock."""
    DEFAULT.check_size(sum(memoryview(part).nbytes for part in parts), "a message")
    views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
    left = [memoryview(LENGTH.pack(sum(map(len, views)))), *views]
    while left:
        _limit(link, until_s)
        sent = link.sendmsg(left[:IOV_MAX])
        while left and sent >= len(left[0]):
            sent -= len(left.pop(0))
        if sent:
            left[0] = left[0][sent:]


def receive(link: socket.socket, until_s: float | None = None) -> bytearray:
    """The next message, complete by ``until_s``; EOFError when the other end is closed before that."""
    (size,) = LENGTH.unpack(_exactly(link, LENGTH.size, until_s))
    try:
        DEFAULT.check_size(size, "an announced message")
    except FrameError as error:
        raise EOFError(str(error)) from error
    return _exactly(link, size, until_s)


def _limit(link: socket.socket, until_s: float | None) -> None:
    """Set a socket's time-out to the remaining time: a fixed one would let a message arrive byte by byte."""
    if until_s is not None:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the time for a message is over.")
        link.settimeout(left_s)


def _exactly(link: socket.socket, size: int, until_s: float | None) -> bytearray:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        _limit(link, until_s)
        got = link.recv_into(view)
        if not got:
            raise EOFError("the other end of the socket is closed.")
        view = view[got:]
    return buffer


def main() -> None:
    """Answer requests until the other end is closed."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # sent to all processes of a job: the run still needs this one
        signal.signal(number, signal.SIG_IGN)
    link = socket.socket(fileno=os.dup(0))
    os.dup2(2, 1)  # output of libraries goes to stderr, or it would be read as an answer
    threading.Thread(target=_exit_with_parent, args=(link.fileno(),), daemon=True).start()
    handler = Handler()
    send(link, pack({"ready": True}, {}))
    try:
        while True:
            send(link, handler.answer(receive(link)))
    except (EOFError, ConnectionError):
        os._exit(0)


def _exit_with_parent(descriptor: int) -> None:
    """End the process as soon as the other end is closed, also during a task."""
    hangs_up = select.poll()
    hangs_up.register(descriptor, 0)  # only the events that are always reported: the other end has closed
    hangs_up.poll()
    os._exit(0)


if __name__ == "__main__":
    main()
