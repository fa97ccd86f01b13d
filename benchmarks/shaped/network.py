"""A network in which every function has an address and a bandwidth of its own. It needs root, and touches nothing else.

The benchmark first moves into a network and mount namespace of its own (:func:`move_out`). Whatever is made
there (bridge, function namespaces, queues) is gone with its last process, however that ends: there is nothing to clean
up, not after a kill either. From there no address can be reached but those made here.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterable
from itertools import count

_NUMBERS = count(213)  # the second byte of a network's addresses
_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000
_BURST_BYTES = 40_000  # what goes at once: 1.6 ms at 200 Mbit/s
_PACKET_BYTES = 30_000  # a bigger one than the burst would be cut into frames of 1,500, at five times the work
_QUEUE_MS = 200  # what a function's queue may hold: never full, as TCP keeps less than that on its way


def move_out() -> None:
    """Move this process, and all it will start, into namespaces of its own; ends it with one sentence if it may not."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS | _CLONE_NEWNET) != 0:
        sys.exit(f"Shaping the network needs root and the right to make namespaces: {os.strerror(ctypes.get_errno())}.")
    os.makedirs("/run/netns", exist_ok=True)
    _run("mount --make-rprivate /", "mount -t tmpfs none /run/netns", "ip link set lo up")


class Network:
    """A bridge, and a namespace for each function, with ``mbit`` Mbit/s to it and from it; None: as fast as it goes."""

    def __init__(self, num_functions: int, mbit: float | None, name: str = "f") -> None:
        self._name, prefix, bridge = name, f"10.{next(_NUMBERS)}", f"{name}-bridge"
        self.home = home = f"{prefix}.0.1"  # where functions find the graph servers
        _run(
            f"ip link add {bridge} type bridge",
            f"ip link set dev {bridge} gso_max_size {_PACKET_BYTES}",
            f"ip addr add {home}/16 dev {bridge}",
            f"ip link set {bridge} up",
        )
        for number in range(num_functions):
            place, cable = self._namespace(number), f"{name}{number}"
            _run(
                f"ip netns add {place}",
                f"ip link add {cable} type veth peer name eth0 netns {place}",
                f"ip link set {cable} master {bridge} up",
                f"ip -n {place} addr add {prefix}.{1 + number // 250}.{1 + number % 250}/16 dev eth0",
                f"ip -n {place} link set eth0 up",
                f"ip -n {place} link set lo up",
            )
            if mbit is not None:
                bucket = f"root tbf rate {mbit:g}mbit burst {_BURST_BYTES} latency {_QUEUE_MS}ms"
                _run(
                    f"ip link set dev {cable} gso_max_size {_PACKET_BYTES}",
                    f"ip -n {place} link set dev eth0 gso_max_size {_PACKET_BYTES}",
                    f"tc qdisc add dev {cable} {bucket}",
                    f"tc -n {place} qdisc add dev eth0 {bucket}",
                )

    def command(self, number: int, words: Iterable[str]) -> list[str]:
        """A command line that runs where a function runs."""
        return ["ip", "netns", "exec", self._namespace(number), *words]

    def _namespace(self, number: int) -> str:
        return f"{self._name}-{number}"


def _run(*commands: str) -> None:
    for command in commands:
        done = subprocess.run(command.split(), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"The network for functions cannot be made: {command!r} failed with {done.stderr.strip()!r}.")
