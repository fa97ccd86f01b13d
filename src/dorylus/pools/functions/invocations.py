"""Invocations of the function: their settings, their frames, the faults behind their answers, and usage counters."""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from dorylus.errors import ConfigError, TrainingError, unknown_name
from dorylus.functions import MAX_TEXT, PRECISIONS
from dorylus.pools.functions.tasks import Array
from dorylus.pools.pool import InvocationResponse, Invoker, Lost
from dorylus.pools.settings import DATA_PATHS
from dorylus.saga import Call
from dorylus.wire import Frame, FrameError, pack, unpack


@dataclass(frozen=True, kw_only=True)
class FunctionsConfig:
    """Settings of a functions pool.

    - ``data_path``: ``"direct"`` (functions dial our data ports), ``"inline"`` (tensors travel in payloads), or
      ``"auto"``: direct where a function reports that it reaches the ports.
    - ``stream``: on the direct path, rows arrive in parts and compute starts on the first.
    - ``precision``: of rows that travel, ``"float32"``, ``"bf16"`` or ``"int8"`` (a scale for each row).
    - ``rematerialize``: gradients run the forward body again; else forward tasks bring back what their gradient
      needs, and it is sent along with the gradient: more bytes, less computed.
    - ``part_bytes``, or ``part_rows``: how big a part of the direct path is.
    - ``timeout_s``: how long an invocation may take. ``max_invocations``: how many threads wait for answers at most.
    - ``host``, ``ports``: where the data ports of rows and weights listen (0: any free port), and ``advertise``, the
      address functions dial if it is another one.
    - ``key_lifetime_s``: how long the keys that an invocation brings along open the ports.
    """

    data_path: str = "auto"
    stream: bool = True
    precision: str = "float32"
    rematerialize: bool = True
    part_bytes: int = 1 << 20
    part_rows: int | None = None
    timeout_s: float = 120.0
    max_invocations: int = 256
    host: str = "127.0.0.1"
    ports: tuple[int, int] = (0, 0)
    advertise: str | None = None
    key_lifetime_s: float = 900.0

    def __post_init__(self) -> None:
        if self.data_path not in DATA_PATHS:
            raise ConfigError(unknown_name("data_path", self.data_path, DATA_PATHS))
        if self.precision not in PRECISIONS:
            raise ConfigError(unknown_name("precision", self.precision, PRECISIONS))
        for name in ("part_bytes", "part_rows", "timeout_s", "max_invocations", "key_lifetime_s"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name}={value}: use a value above 0.")


@dataclass
class FunctionUsage:
    """Totals. Bytes are counted at functions: ``bytes_in`` what they received or fetched, ``bytes_out`` what they sent.

    ``duplicates``: parts that came when another attempt had already brought them, or after its call had ended.
    """

    invocations: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    billed_ms: float = 0.0
    init_ms: float = 0.0
    fetch_ms: float = 0.0
    compute_ms: float = 0.0
    push_ms: float = 0.0
    cold_starts: int = 0
    duplicates: int = 0

    def __add__(self, other: "FunctionUsage") -> "FunctionUsage":
        return FunctionUsage(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(FunctionUsage)))


class UsageCounter:
    """Counts the usage of each kind of task (AV, ∇AV and so on); any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_kind: dict[str, FunctionUsage] = defaultdict(FunctionUsage)

    def add(self, kind: str, **amounts: float) -> None:
        """Add to some counters of a kind of task."""
        with self._lock:
            usage = self._by_kind[kind]
            for name, amount in amounts.items():
                setattr(usage, name, getattr(usage, name) + amount)

    def snapshot(self) -> Mapping[str, FunctionUsage]:
        """The usage so far, by kind of task."""
        with self._lock:
            return {kind: replace(usage) for kind, usage in self._by_kind.items()}

    def total(self) -> FunctionUsage:
        """The usage so far, of all kinds together."""
        return sum(self.snapshot().values(), FunctionUsage())


@dataclass(frozen=True)
class Invoked:
    """One invocation that the service bills, also if it was lost. ``kind`` is the kind of task, or ``"probe"``.

    ``billed_ms`` is the time that the service reports, else the function, else the time waited; ``init_ms`` is
    the part of it that a cold start took.
    """

    kind: str
    billed_ms: float
    cold: bool
    bytes_in: int
    bytes_out: int
    init_ms: float = 0.0


class Invocations:
    """Invokes the function for calls; counts each invocation, and raises failures that the function reports.

    ``begins`` is called before every invocation, ``invoked`` at its end: in the thread that makes it.
    """

    def __init__(
        self,
        invoker: Invoker,
        usage: UsageCounter,
        timeout_s: float,
        invoked: Callable[[Invoked], None] = lambda invocation: None,
        clock: Callable[[], float] = time.perf_counter,
        begins: Callable[[], None] = lambda: None,
    ) -> None:
        self.invoker, self._usage, self._timeout_s = invoker, usage, timeout_s
        self._invoked, self._clock, self._begins = invoked, clock, begins
        self._ended, self._under_way = threading.Condition(), 0

    def wait_for_all(self, timeout_s: float) -> bool:
        """Wait until no invocation is in flight; False on a time-out."""
        with self._ended:
            return self._ended.wait_for(lambda: not self._under_way, timeout_s)

    def run(self, call: Call, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Frame:
        """The function's answer to a frame; raises a fault, or the body's error."""
        frame = self.ask(str(call.task.kind), header, arrays)
        if "error" not in frame.header:
            return frame
        text = printable(frame.header["error"])
        if frame.header.get("kind") in ("frame", "wire", "refused"):
            raise Lost(f"a function could not read or reach its data: {text}")
        where = f"on interval {call.task.interval} in epoch {call.task.epoch + 1}"
        raise TrainingError(f"{call.body.label} failed {where}, in a function: {text}")

    def ask(self, kind: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Frame:
        """The function's answer to a frame, counted under a kind of task."""
        request = b"".join(pack(header, arrays))
        with self._counted():
            return self._ask(kind, request)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._ended:
            self._under_way += 1
        try:
            yield
        finally:
            with self._ended:
                self._under_way -= 1
                self._ended.notify_all()

    def _ask(self, kind: str, request: bytes) -> Frame:
        self._usage.add(kind, invocations=1, bytes_in=len(request))
        self._begins()
        start_s = self._clock()
        try:
            answer = self.invoker.invoke(request, self._timeout_s)
            frame = unpack(answer.content)
        except Lost:
            self._bill(kind, Invoked(kind, 1000 * (self._clock() - start_s), False, len(request), 0))
            raise
        except FrameError as error:
            self._bill(kind, Invoked(kind, 1000 * (self._clock() - start_s), False, len(request), 0))
            raise Lost(f"a function answered with something that is no frame: {error}") from error
        self._count(kind, len(request), answer, frame)
        return frame

    def _count(self, kind: str, request_bytes: int, answer: InvocationResponse, frame: Frame) -> None:
        reported = frame.header.get("timings")
        timings = reported if isinstance(reported, dict) else {}
        billed = math.ceil(_milliseconds(timings, "total_ms")) if answer.billed_ms is None else answer.billed_ms
        cold = frame.header.get("cold") is True if answer.cold is None else answer.cold
        size = memoryview(answer.content).nbytes
        spent = {name: _milliseconds(timings, name) for name in ("init_ms", "fetch_ms", "compute_ms", "push_ms")}
        self._usage.add(kind, bytes_out=size, **spent)
        init_ms = (spent["init_ms"] if answer.init_ms is None else answer.init_ms) if cold else 0.0
        self._bill(kind, Invoked(kind, billed, cold, request_bytes, size, min(init_ms, billed)))

    def _bill(self, kind: str, invocation: Invoked) -> None:
        self._usage.add(kind, billed_ms=invocation.billed_ms, cold_starts=int(invocation.cold))
        self._invoked(invocation)


def printable(text: Any) -> str:
    """Text of a function for errors and logs: one line of bounded length."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text)[:MAX_TEXT])


def _milliseconds(timings: Mapping[str, Any], name: str) -> float:
    value = timings.get(name, 0.0)
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else 0.0
