"""Delay, in user space: a process between functions and data ports that holds every byte back, both ways.

    python -m benchmarks.shaped.relay HOST DELAY_MS PORT...

It listens on the ports of HOST and hands on to the same ports of 127.0.0.1. It belongs to the benchmark: neither the
handler nor the data ports know of it. It ends when its standard input does.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence

CHUNK_BYTES = 256 << 10
AHEAD_BYTES = 2 << 20  # held at most in each direction: 200 Mbit/s bring 250 kB in ten milliseconds


class Lane:
    """One direction of a connection: what came from one end, until it is due at the other."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source, self.target = source, target
        self.waiting: deque[tuple[float, bytes | memoryview]] = deque()
        self.held_bytes = 0
        self.paused = self.ended = self.blocked = self.over = False


class Relay:
    """All connections, in one loop."""

    def __init__(self, host: str, delay_s: float, ports: Sequence[int]) -> None:
        self._delay_s = delay_s
        self._selector = selectors.DefaultSelector()
        self._lanes: dict[socket.socket, tuple[Lane, Lane]] = {}  # by socket: the lane from it, the lane to it
        self._due: deque[tuple[float, Lane]] = deque()  # in order, as all wait equally long
        for port in ports:
            listener = socket.create_server((host, port), backlog=1024)
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, port)
        self._selector.register(0, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Forward until standard input is closed."""
        while True:
            for key, events in self._selector.select(self._patience_s()):
                if key.fd == 0:
                    return
                if key.data is not None:
                    self._accept(key.fileobj, key.data)
                    continue
                if events & selectors.EVENT_READ and key.fileobj in self._lanes:
                    self._read(self._lanes[key.fileobj][0])
                if events & selectors.EVENT_WRITE and key.fileobj in self._lanes:
                    self._write(self._lanes[key.fileobj][1])
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                self._write(self._due.popleft()[1])

    def _patience_s(self) -> float | None:
        return max(0.0, self._due[0][0] - time.monotonic()) if self._due else None

    def _accept(self, listener: socket.socket, port: int) -> None:
        near, _ = listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", port), timeout=5)
        except OSError:
            near.close()
            return
        there, back = Lane(near, far), Lane(far, near)
        for end, lanes in ((near, (there, back)), (far, (back, there))):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._lanes[end] = lanes
            self._selector.register(end, selectors.EVENT_READ)

    def _read(self, lane: Lane) -> None:
        try:
            content = lane.source.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        due = time.monotonic() + self._delay_s
        lane.waiting.append((due, content))
        self._due.append((due, lane))
        lane.held_bytes += len(content)
        lane.ended = not content
        if lane.ended or lane.held_bytes >= AHEAD_BYTES:
            lane.paused = True
            self._watch(lane.source)

    def _write(self, lane: Lane) -> None:
        now = time.monotonic()
        while lane.waiting and lane.waiting[0][0] <= now and not lane.over:
            due, content = lane.waiting[0]
            if not content:
                self._hang_up(lane)
                return
            try:
                sent = lane.target.send(content)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._hang_up(lane)
                return
            lane.held_bytes -= sent
            if sent < len(content):
                lane.waiting[0] = (due, memoryview(content)[sent:])
                self._set_blocked(lane, True)
                break
            lane.waiting.popleft()
        else:
            self._set_blocked(lane, False)
        if lane.paused and lane.held_bytes < AHEAD_BYTES // 2 and not (lane.ended or lane.over):
            lane.paused = False
            self._watch(lane.source)

    def _set_blocked(self, lane: Lane, blocked: bool) -> None:
        if lane.blocked != blocked and not lane.over:
            lane.blocked = blocked
            self._watch(lane.target)

    def _watch(self, end: socket.socket) -> None:
        away, here = self._lanes[end]
        events = (0 if away.paused else selectors.EVENT_READ) | (selectors.EVENT_WRITE if here.blocked else 0)
        known = end.fileno() in self._selector.get_map()
        if known and events:
            self._selector.modify(end, events)
        elif known:
            self._selector.unregister(end)
        elif events:
            self._selector.register(end, events)

    def _hang_up(self, lane: Lane) -> None:
        """One end is gone, so the other goes too: a half-open connection is useless."""
        for end in (lane.source, lane.target):
            for each in self._lanes.pop(end, ()):
                each.over = True
            if end.fileno() in self._selector.get_map():
                self._selector.unregister(end)
            end.close()


def main() -> None:
    host, delay_ms, *ports = sys.argv[1:]
    relay = Relay(host, float(delay_ms) / 1e3, [int(port) for port in ports])
    os.write(1, b"ready\n")
    relay.run()


if __name__ == "__main__":
    main()
