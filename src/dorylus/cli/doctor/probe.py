"""The probe that runs on a node: reports what is installed, listens as a graph server does, and dials all other nodes.

It is sent to the node and needs only Python on load, so that a node without Dorylus can report that. Answers
are plain data.
"""

import hashlib
import json
import os
import platform
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dorylus.wire import Connection

PACKAGES = ("ray", "torch", "numpy", "pyzmq")
SESSION = 1
PINGS = 11
PING_S = 5.0  # for all of them
BIG_BYTES = 8 << 20
BIG_S = 10.0
END_S = 5.0


def machine(store: str) -> dict[str, Any]:
    """The fields of a :class:`~dorylus.cli.doctor.cluster.Machine`."""
    kernels, kernels_error = _tried(_kernels)
    digest, store_error = _tried(lambda: _digest(store)) if store else ("", "")
    total, free = _memory(Path("/proc/meminfo").read_text())
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}
        | {"dorylus": _tried(_dorylus)[0]},
        "kernels": kernels,
        "kernels_error": kernels_error,
        "memory_bytes": total,
        "free_memory_bytes": free,
        "token": os.environ.get("RAY_AUTH_MODE", "").lower() == "token",
        "store": digest,
        "store_error": store_error,
    }


class Probe:
    """One node of several, which are numbered."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None
        self._lock = threading.Lock()
        self._dialled: dict[int, Connection] = {}
        self._answered: list[Connection] = []
        self._threads: list[threading.Thread] = []

    def machine(self, store: str) -> dict[str, Any]:
        """The facts about its machine."""
        return machine(store)

    def clock(self) -> float:
        """The node's time of day."""
        return time.time()

    def listen(self, host: str, secret: bytes, me: int) -> int:
        """Answers every peer that dials with the secret, from now on; returns the port."""
        self._listener = socket.create_server((host, 0), backlog=256)
        self._begin(self._welcome, secret, me)
        return int(self._listener.getsockname()[1])

    def dial(self, addresses: Mapping[int, tuple[str, int]], secret: bytes, me: int) -> dict[int, dict[str, Any]]:
        """Dial all of them at once: what came of it, as fields of a pair each."""
        return _at_once(addresses, lambda peer: self._dial(peer, addresses[peer], secret, me))

    def send(self, peers: Sequence[int]) -> dict[int, float | None]:
        """Send something big to those that were reached, one after the other: bytes a second."""
        return {peer: self._speed(self._dialled[peer]) for peer in peers if peer in self._dialled}

    def close(self) -> None:
        """Close the connections, and stop listening."""
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        with self._lock:
            for connection in [*self._dialled.values(), *self._answered]:
                connection.close()
        for thread in self._threads:
            thread.join(END_S)

    def _begin(self, do: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=do, args=arguments, name="dorylus-probe", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _dial(self, peer: int, address: tuple[str, int], secret: bytes, me: int) -> dict[str, Any]:
        from dorylus.wire import dial

        try:
            connection = dial((address[0], address[1]), secret, SESSION, me, peer)
            with self._lock:
                self._dialled[peer] = connection
            return {"round_trip_s": self._round_trip_s(connection)}
        except Exception as why:
            return {"error": str(why) or type(why).__name__}

    def _round_trip_s(self, connection: "Connection") -> float:
        """The median of a few."""
        with _hung_up_after(PING_S, connection):
            return statistics.median(_echoed_s(connection, 0) for _ in range(PINGS))

    def _speed(self, connection: "Connection") -> float | None:
        """The better of two measurements: fresh memory makes the first one slow."""
        try:
            with _hung_up_after(BIG_S, connection):
                return BIG_BYTES / min(_echoed_s(connection, BIG_BYTES) for _ in range(2))
        except (OSError, EOFError):
            return None

    def _welcome(self, secret: bytes, me: int) -> None:
        assert self._listener is not None
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            self._begin(self._echo, link, secret, me)

    def _echo(self, link: socket.socket, secret: bytes, me: int) -> None:
        """Acknowledges every message of the peer that dialled."""
        from dorylus.wire import WireError, answer, pack

        try:
            connection = answer(link, secret, SESSION, me)
            with self._lock:
                self._answered.append(connection)
            while True:
                connection.receive()
                connection.send(pack({}, {}))
        except (WireError, OSError, EOFError):
            link.close()


def _echoed_s(connection: "Connection", num_bytes: int) -> float:
    """Seconds from sending a message to its acknowledgement."""
    import numpy as np

    from dorylus.wire import pack

    parts = pack({}, {"big": np.zeros(num_bytes, np.uint8)} if num_bytes else {})
    begun = time.perf_counter()
    connection.send(parts)
    connection.receive()
    return time.perf_counter() - begun


@contextmanager
def _hung_up_after(seconds: float, connection: "Connection") -> Iterator[None]:
    """Closes the connection after a time-out: it would otherwise wait for its peer without end."""
    timer = threading.Timer(seconds, connection.close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _at_once(peers: Iterable[int], do: Callable[[int], dict[str, Any]]) -> dict[int, dict[str, Any]]:
    done: dict[int, dict[str, Any]] = {}
    threads = [threading.Thread(target=lambda peer=peer: done.update({peer: do(peer)})) for peer in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def _tried(find: Callable[[], str]) -> tuple[str, str]:
    """(what was found, ""), or ("", why nothing was)."""
    try:
        return find(), ""
    except Exception as why:
        return "", str(why) or type(why).__name__


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _dorylus() -> str:
    import dorylus

    return dorylus.__version__


def _kernels() -> str:
    from dorylus.backends import native

    return native.isa()


def _digest(store: str) -> str:
    from dorylus.graph import STORE, map_arrays, read_manifest

    manifest = read_manifest(store, STORE)
    map_arrays(store, STORE, manifest, only=lambda name: False)  # compares the sizes of all files
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _memory(meminfo: str) -> tuple[int, int]:
    """(all, available), in bytes."""
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in meminfo.splitlines() if line.endswith("kB")}
    return sizes["MemTotal"], sizes["MemAvailable"]
