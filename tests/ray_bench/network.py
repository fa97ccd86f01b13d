"""A bridge with a network namespace for each node: an address each, and a cable that can be cut."""

import os
import subprocess
from collections.abc import Iterable

_BRIDGE = "rays"


class Network:
    """Nodes 0 to ``count`` - 1, each with an address. There is no route out of the network."""

    def __init__(self, count: int, prefix: str = "10.77.0") -> None:
        self._places = [f"node-{number}" for number in range(count)]
        self.addresses = [f"{prefix}.{number + 2}" for number in range(count)]
        _run(f"ip link add {_BRIDGE} type bridge", f"ip link set {_BRIDGE} up")
        for number, (place, address) in enumerate(zip(self._places, self.addresses, strict=True)):
            _run(
                f"ip netns add {place}",
                f"ip link add {_cable(number)} type veth peer name eth0 netns {place}",
                f"ip link set {_cable(number)} master {_BRIDGE} up",
                f"ip -n {place} addr add {address}/24 dev eth0",
                f"ip -n {place} link set eth0 up",
                f"ip -n {place} link set lo up",
            )
        self._namespaces = [f"net:[{os.stat(f'/run/netns/{place}').st_ino}]" for place in self._places]

    def command(self, node: int, words: Iterable[str]) -> list[str]:
        """A command line that runs on a node."""
        return ["nsenter", f"--net=/run/netns/{self._places[node]}", *words]

    def processes(self, node: int) -> list[int]:
        """The processes on a node."""
        return [pid for pid in alive() if namespace(pid) == self._namespaces[node]]

    def cut(self, node: int) -> None:
        """Pull the cable: every packet to or from the node is lost."""
        _run(f"ip link set {_cable(node)} down")

    def mend(self, node: int) -> None:
        """Plug the cable in again."""
        _run(f"ip link set {_cable(node)} up")

    def close(self) -> None:
        """Remove all of it."""
        for number, place in enumerate(self._places):
            _run(f"ip link delete {_cable(number)}", f"ip netns delete {place}")
        _run(f"ip link delete {_BRIDGE}")


def alive() -> list[int]:
    """All processes except zombies, which have ended and wait for their parent to read the exit code."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and title(int(name))]


def title(pid: int) -> str:
    """A process's command line, which Ray's workers set to their current task; empty once it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def namespace(pid: int) -> str:
    """The network namespace of a process, as the kernel names it."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def _cable(node: int) -> str:
    return f"cable-{node}"


def _run(*commands: str) -> None:
    for command in commands:
        done = subprocess.run(command.split(), capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{command!r} failed: {done.stderr.strip()!r}")
