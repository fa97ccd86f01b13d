"""The direct path inside a function: rows and weights are fetched from the servers' ports, outputs are pushed there.

Rows arrive in parts: the next one travels while one is computed, and so do the outputs of the one before. Everything
sent is acknowledged before the task is done. Weights by version and open connections are kept from one invocation to
the next. This file is shipped inside functions.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from dorylus.functions.invocation import CONTENT, DirectTask, Invocation, Stopwatch
from dorylus.functions.payload import narrow, widen
from dorylus.functions.program import ArrayRole, is_summed, role
from dorylus.functions.runner import Loaded, Runner, Whole
from dorylus.wire import Frame, WireError

KeptArrays = dict[str, NDArray[Any]]
Arrays = Mapping[str, NDArray[Any]]


class Link(Protocol):
    """A client of a data port: it sends requests, and receives answers by the request's id."""

    def send(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], timeout_s: float) -> int:
        """Send a request; returns its id."""

    def receive(self, request: int, timeout_s: float) -> Frame:
        """The answer to a request."""

    def close(self) -> None:
        """Close the connection."""


Connect = Callable[[str, Mapping[str, Any]], Link]


def connect(address: str, keys: Mapping[str, Any]) -> Link:
    """A client of the port at an address, with the keys of an invocation."""
    from dorylus.wire import Client, ClientKeys

    return Client(address, ClientKeys.from_header(dict(keys)))


class WarmWeights:
    """The versions of weights used last; a version never changes, so fetched weights stay valid."""

    def __init__(self, max_versions: int = 8) -> None:
        self._max_versions = max_versions
        self._versions: OrderedDict[str, KeptArrays] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, version: str, names: list[str], fetch: Callable[[list[str]], KeptArrays]) -> KeptArrays:
        """Some weights of a version, fetched unless they are cached."""
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
        """Whether this thread has connections of an earlier invocation, which a freeze may have broken."""
        return bool(self._links())

    def to(self, address: str, keys: Mapping[str, Any]) -> Link:
        """The connection to an address with these keys: an open one, or a new one."""
        links = self._links()
        name = (address, str(keys.get("public")))
        if name not in links:
            while len(links) >= self._max_links:
                links.popitem(last=False)[1].close()
            links[name] = self._connect(address, keys)
        links.move_to_end(name)
        return links[name]

    def disconnect(self) -> None:
        """Close this thread's connections: answers to abandoned requests may still arrive on them."""
        links = self._links()
        while links:
            links.popitem()[1].close()

    def _links(self) -> OrderedDict[tuple[str, str], Link]:
        if not hasattr(self._own, "links"):
            self._own.links = OrderedDict()
        links: OrderedDict[tuple[str, str], Link] = self._own.links
        return links


class DirectCall:
    """The requests of one task to the ports. Every wait is at most ``timeout_s`` long."""

    def __init__(self, task: str, direct: DirectTask, rows: Link, weights: Link, watch: Stopwatch) -> None:
        self._task, self._direct, self._rows, self._weights = task, direct, rows, weights
        self.watch = watch
        self._requested: list[int] = []
        self._pushed: list[tuple[Link, int]] = []

    def request_ahead(self) -> None:
        """Request the first part: it travels while program and weights are loaded."""
        self._request_up_to(1 if self._direct.stream else self._direct.num_parts)

    def program(self, program_hash: str) -> bytes:
        """The content of the program."""
        frame = self._request(self._weights, {"ask": "program", "program": program_hash})
        if CONTENT not in frame.arrays:
            raise WireError(f"program {program_hash[:12]} was requested, but the answer holds none.")
        return frame.arrays[CONTENT].tobytes()

    def weights(self, names: list[str]) -> dict[str, NDArray[Any]]:
        """Some weights of the task's version, in memory of their own."""
        request = {"ask": "weights", "version": self._direct.weights, "names": names}
        return {name: array.copy() for name, array in self._request(self._weights, request).arrays.items()}

    def parts(self) -> Iterator[Frame]:
        """The parts of the rows, in order; each is requested before the one before it is returned."""
        for part in range(self._direct.num_parts):
            self._request_up_to(part + 2)
            yield self._receive(self._rows, self._requested[part])

    def push_rows(self, part: int, arrays: Arrays) -> None:
        """Send the outputs of a part; at most two are under way at a time."""
        if arrays:
            self._push(self._rows, {"ask": "take", "part": part}, arrays)

    def finish(self, sums: Arrays) -> None:
        """Send what was summed over all parts, and wait until everything sent is acknowledged."""
        if sums:
            self._push(self._weights, {"ask": "take"}, sums)
        self._settle(0)

    def _push(self, link: Link, header: dict[str, Any], arrays: Arrays) -> None:
        self._settle(1)
        with self.watch.on("push"):
            self._pushed.append((link, self._send(link, header, arrays)))

    def _settle(self, left: int) -> None:
        with self.watch.on("push"):
            while len(self._pushed) > left:  # an output that another attempt has pushed before counts as acknowledged
                link, request = self._pushed.pop(0)
                link.receive(request, self._direct.timeout_s)

    def _request_up_to(self, parts: int) -> None:
        for part in range(len(self._requested), min(parts, self._direct.num_parts)):
            with self.watch.on("fetch"):
                self._requested.append(self._send(self._rows, {"ask": "rows", "part": part}, {}))

    def _request(self, link: Link, header: dict[str, Any]) -> Frame:
        with self.watch.on("fetch"):
            request = self._send(link, header, {})
        return self._receive(link, request)

    def _send(self, link: Link, header: dict[str, Any], arrays: Arrays) -> int:
        return link.send({**header, "task": self._task}, arrays, self._direct.timeout_s)

    def _receive(self, link: Link, request: int) -> Frame:
        with self.watch.on("fetch"):
            return link.receive(request, self._direct.timeout_s)


def run_direct_call(
    invocation: Invocation, arrays: Arrays, call: DirectCall, runner: Runner, warm: WarmWeights
) -> None:
    """Fetch, compute and push a task. ``arrays`` are those that came with the invocation."""
    direct = invocation.direct
    assert direct is not None
    call.request_ahead()
    program = _ready(invocation.program, call, runner)
    needed = [name for name in program.inputs if role(name) is ArrayRole.WEIGHT]
    whole = {**arrays, **warm.get(direct.weights, needed, call.weights)}
    sums = Whole(program, None)

    def compute(part: Frame) -> dict[str, NDArray[Any]]:
        with call.watch.on("compute"):
            made = runner.run(program.hash, {**whole, **widen(part.arrays, invocation.columns, program.shapes)})
            sums.add(made)
            return narrow({name: made[name] for name in made if not is_summed(name)}, invocation.precision)

    fetched: Iterable[Frame] = call.parts() if direct.stream else list(call.parts())
    outputs: Iterable[Arrays] = map(compute, fetched) if direct.stream else [compute(part) for part in fetched]
    for part, rows in enumerate(outputs):
        call.push_rows(part, rows)
    call.finish(sums.arrays)


def _ready(program_hash: str, call: DirectCall, runner: Runner) -> Loaded:
    if not runner.known(program_hash):
        content = call.program(program_hash)
        with call.watch.on("init"):
            runner.load(program_hash, content)
    return runner.loaded(program_hash)
