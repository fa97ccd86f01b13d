"""Measures one function's network: megabits a second each way, and the time of a round trip.

    python -m benchmarks.shaped.probe HOST PORT

runs where a function runs, and talks to :func:`measure` through the relay.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.shaped.network import Network

SENT_BYTES = 20 << 20
TRIPS = 20


@dataclass(frozen=True)
class Link:
    """One function's network, as measured."""

    down_mbit: float
    up_mbit: float
    round_trip_ms: float

    def __str__(self) -> str:
        rates = f"{self.down_mbit:.0f} Mbit/s to it, {self.up_mbit:.0f} Mbit/s from it"
        return f"one function has {rates}, round trip {self.round_trip_ms:.1f} ms"


def measure(network: Network, number: int, port: int) -> Link:
    """Measure a function's network; the relay must hand the port on to this machine."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(30)
        answering = threading.Thread(target=_answer, args=(listener,), daemon=True)
        answering.start()
        words = network.command(number, [sys.executable, "-m", "benchmarks.shaped.probe", network.home, str(port)])
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        answering.join(10)
    if done.returncode != 0:
        raise SystemExit(f"A function's network could not be measured: {done.stderr.strip()}")
    return Link(**json.loads(done.stdout))


def _answer(listener: socket.socket) -> None:
    """One byte for one byte, then some megabytes, then one byte for some megabytes."""
    with listener.accept()[0] as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(TRIPS + 1):
            link.sendall(link.recv(1))
        link.sendall(bytes(SENT_BYTES))
        _receive(link, SENT_BYTES)
        link.sendall(b"!")
        link.recv(1)


def _receive(link: socket.socket, count: int) -> None:
    while count > 0:
        got = len(link.recv(min(count, 1 << 20)))
        if not got:
            raise EOFError("the other end hung up.")
        count -= got


def probe(host: str, port: int) -> Link:
    """The function's side."""
    with socket.create_connection((host, port), timeout=60) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = [_timed(link, b"?", 1) for _ in range(TRIPS + 1)][1:]
        down_s = _timed(link, b"", SENT_BYTES)
        up_s = _timed(link, bytes(SENT_BYTES), 1)
        megabits = 8 * SENT_BYTES / 1e6
        return Link(megabits / down_s, megabits / up_s, 1e3 * statistics.median(trips))


def _timed(link: socket.socket, request: bytes, answer_bytes: int) -> float:
    start = time.perf_counter()
    link.sendall(request)
    _receive(link, answer_bytes)
    return time.perf_counter() - start


def main(arguments: Sequence[str]) -> None:
    print(json.dumps(vars(probe(arguments[0], int(arguments[1])))))


if __name__ == "__main__":
    main(sys.argv[1:])
