"""The code that runs inside a function, on every service: a frame with a task in, a frame with its outputs out.

``handle`` is a pure function of its request; what it keeps between calls (programs ready to run, weights by version,
open connections) only makes it faster. Imports numpy, onnxruntime and, once a port is dialled, pyzmq.
"""

import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from numpy.typing import NDArray

from dorylus.errors import DorylusError
from dorylus.functions.direct_path import DirectCall, Links, WarmWeights, run_direct_call
from dorylus.functions.invocation import CONTENT, MAX_TEXT, DirectTask, Invocation, Stopwatch, ports_of
from dorylus.functions.payload import narrow, widen
from dorylus.functions.runner import Runner
from dorylus.wire import DEFAULT, Buffer, Frame, FrameError, Refused, WireError, pack, unpack

Arrays = dict[str, NDArray[Any]]
Answer = tuple[dict[str, Any], Arrays]

PROBE_S = 3.0  # the time-out of the first answer of a port
LIMITS = DEFAULT  # of an answer


class Handler:
    """Runs invocations, and caches what the next one may need. Several threads may use one handler."""

    def __init__(
        self,
        runner: Runner | None = None,
        links: Links | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._runner, self._links, self._clock = runner or Runner(), links or Links(), clock
        self._weights = WarmWeights()
        self._used = threading.Event()

    def handle(self, request: Buffer) -> bytes:
        """The answer to a request, both as frames. An error is sent in the answer, never raised."""
        return b"".join(self.answer(request))

    def answer(self, request: Buffer) -> list[Buffer]:
        """The same answer as buffers, without copying the outputs."""
        watch, cold = Stopwatch(self._clock), not self._used.is_set()
        self._used.set()
        try:
            frame = unpack(request)
            about = {"task": frame.header.get("task")}
            header, arrays = self._carry_out(frame, watch)
            return pack({**about, **header, "timings": watch.timings(), "cold": cold}, arrays, LIMITS)
        except Exception as error:
            self._links.disconnect()
            return pack({**_described(error), "timings": watch.timings(), "cold": cold}, {})

    def _carry_out(self, frame: Frame, watch: Stopwatch) -> Answer:
        if "probe" in frame.header:
            return self._probe(frame.header)
        invocation = Invocation.from_header(frame.header)
        arrays = dict(frame.arrays)
        content = arrays.pop(CONTENT, None)
        if content is not None:
            with watch.on("init"):
                self._runner.load(invocation.program, content.tobytes())
        if invocation.direct is not None:
            return self._run_direct(invocation, invocation.direct, arrays, watch)
        if not self._runner.known(invocation.program):
            return {"missing": invocation.program}, {}
        with watch.on("compute"):
            shapes = self._runner.loaded(invocation.program).shapes
            made = self._runner.run(invocation.program, widen(arrays, invocation.columns, shapes))
            return {}, narrow(made, invocation.precision)

    def _run_direct(self, invocation: Invocation, direct: DirectTask, arrays: Arrays, watch: Stopwatch) -> Answer:
        """Run a task over the ports; again over new connections if connections of earlier invocations failed."""
        was_warm = self._links.is_warm
        try:
            self._call_ports(invocation, direct, arrays, watch)
        except Refused:
            raise
        except WireError:
            self._links.disconnect()
            if not was_warm:
                raise
            self._call_ports(invocation, direct, arrays, watch)
        return {}, {}

    def _call_ports(self, invocation: Invocation, direct: DirectTask, arrays: Arrays, watch: Stopwatch) -> None:
        ports = direct.ports
        rows, weights = (self._links.to(address, ports.keys) for address in (ports.rows, ports.weights))
        call = DirectCall(invocation.task, direct, rows, weights, watch)
        run_direct_call(invocation, arrays, call, self._runner, self._weights)

    def _probe(self, header: Mapping[str, Any]) -> Answer:
        """Whether both ports can be reached from here."""
        ports = ports_of(header)
        try:
            for address in (ports.rows, ports.weights):
                link = self._links.to(address, ports.keys)
                link.receive(link.send({"ask": "hello"}, {}, PROBE_S), PROBE_S)
        except WireError as error:
            self._links.disconnect()
            return {"reached": False, "why": str(error)}, {}
        return {"reached": True}, {}


def _described(error: Exception) -> dict[str, Any]:
    """The error for the answer. Its kind says whether a retry may help: wire and refused yes, task and frame no."""
    kinds = ((FrameError, "frame"), (Refused, "refused"), (WireError, "wire"))
    kind = next((kind for of, kind in kinds if isinstance(error, of)), "task")
    text = str(error) if isinstance(error, DorylusError) else f"{type(error).__name__}: {error}"
    return {"error": text[:MAX_TEXT], "kind": kind}


@cache
def of_this_process() -> Handler:
    """The only handler of this process, made at first use."""
    return Handler()


def handle(request: Buffer) -> bytes:
    """The answer to a request by the handler of this process."""
    return of_this_process().handle(request)
