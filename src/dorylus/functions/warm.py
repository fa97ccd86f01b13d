"""What a function keeps from one invocation to the next: weights by version, and open connections.

This file is shipped inside functions: numpy, and pyzmq once a port is dialled.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from dorylus.wire.frames import Frame

Arrays = dict[str, NDArray[Any]]


class Link(Protocol):
    """A client of a data port: requests are sent, answers received by the request's id."""

    def send(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], timeout_s: float) -> int:
        """Send a request; gives its id."""

    def receive(self, request: int, timeout_s: float) -> Frame:
        """The answer to a request."""

    def close(self) -> None:
        """Hang up."""


Connect = Callable[[str, Mapping[str, Any]], Link]


def connect(address: str, keys: Mapping[str, Any]) -> Link:
    """A client of the port at an address, with the keys an invocation brought."""
    from dorylus.wire.client import Client
    from dorylus.wire.keys import ClientKeys

    return Client(address, ClientKeys.from_header(dict(keys)))


class WarmWeights:
    """The versions of weights used last; a version never changes, so what was fetched of it stays right."""

    def __init__(self, max_versions: int = 8) -> None:
        self._max_versions = max_versions
        self._versions: OrderedDict[str, Arrays] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, version: str, names: list[str], fetch: Callable[[list[str]], Arrays]) -> Arrays:
        """Some weights of a version; those not here yet are fetched."""
        with self._lock:
            held = dict(self._versions.get(version, {}))
        if missing := [name for name in names if name not in held]:
            held |= fetch(missing)
        with self._lock:
            self._versions[version] = self._versions.get(version, {}) | held
            self._versions.move_to_end(version)
            while len(self._versions) > self._max_versions:
                self._versions.popitem(last=False)
        return {name: held[name] for name in names if name in held}


class Links:
    """Open connections, kept for the next invocation; each thread has its own, as sockets must not be shared."""

    def __init__(self, connect: Connect = connect, max_links: int = 8) -> None:
        self._connect, self._max_links = connect, max_links
        self._own = threading.local()

    @property
    def is_warm(self) -> bool:
        """Whether this thread has connections from earlier: they may be dead, if the function was frozen since."""
        return bool(self._links())

    def to(self, address: str, keys: Mapping[str, Any]) -> Link:
        """The connection to an address with these keys: the one there is, or a new one."""
        links = self._links()
        name = (address, str(keys.get("public")))
        if name not in links:
            while len(links) >= self._max_links:
                links.popitem(last=False)[1].close()
            links[name] = self._connect(address, keys)
        links.move_to_end(name)
        return links[name]

    def hang_up(self) -> None:
        """Close this thread's connections: answers to requests that nobody waits for any more may be under way."""
        links = self._links()
        while links:
            links.popitem()[1].close()

    def _links(self) -> OrderedDict[tuple[str, str], Link]:
        if not hasattr(self._own, "links"):
            self._own.links = OrderedDict()
        links: OrderedDict[tuple[str, str], Link] = self._own.links
        return links
