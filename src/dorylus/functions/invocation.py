"""The header of an invocation's frame, as both ends read and write it; and a stopwatch for a function's steps.

This file is shipped inside functions: numpy only.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from dorylus.functions.payload import PRECISIONS
from dorylus.wire import FrameError

CONTENT: Final = "program.content"  # the name under which a program travels in a frame
MAX_PARTS: Final = 1 << 20  # of one task's rows
MAX_TEXT: Final = 4000  # characters of an error that a function sends, and that are kept
DEFAULT_TIMEOUT_S: Final = 60.0
TOKEN_VARIABLE: Final = "DORYLUS_FUNCTION_TOKEN"  # the environment variable with the token that both ends share
_NO_DEFAULT: Final = object()
SPENT_ON = ("init", "fetch", "compute", "push")


@dataclass(frozen=True)
class Ports:
    """The addresses of the graph servers' two data ports, for rows and for weights, and the keys to connect with."""

    rows: str
    weights: str
    keys: Mapping[str, Any] = field(repr=False)

    def to_header(self) -> dict[str, Any]:
        """Their part of an invocation's header. Never log this: it holds a secret key."""
        return {"ports": {"rows": self.rows, "weights": self.weights}, "keys": dict(self.keys)}


@dataclass(frozen=True)
class DirectTask:
    """A task on the direct path: what the function fetches and pushes itself. ``weights`` is the id of their version.

    ``stream``: a part of the rows is fetched while the one before is computed; else everything is fetched first.
    """

    ports: Ports
    rows: int
    part_rows: int
    weights: str
    stream: bool = True
    timeout_s: float = DEFAULT_TIMEOUT_S

    @property
    def num_parts(self) -> int:
        """The number of parts that the rows are cut into."""
        return -(-self.rows // self.part_rows)

    def to_header(self) -> dict[str, Any]:
        """Its part of an invocation's header. Never log this: it holds a secret key."""
        own = {name: getattr(self, name) for name in ("rows", "part_rows", "weights", "stream", "timeout_s")}
        return {**own, **self.ports.to_header()}


@dataclass(frozen=True)
class Invocation:
    """One invocation: a task by its id, its program by hash, the widths of sparse rows, and how outputs travel."""

    task: str
    program: str
    columns: Mapping[str, int] = field(default_factory=dict)
    precision: str = "float32"
    direct: DirectTask | None = None

    def to_header(self) -> dict[str, Any]:
        """The header of the frame."""
        header = {
            "task": self.task,
            "program": self.program,
            "columns": dict(self.columns),
            "precision": self.precision,
        }
        return header if self.direct is None else {**header, **self.direct.to_header()}

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> "Invocation":
        """The invocation that a header describes."""
        invocation = cls(
            _get(header, "task", str),
            _get(header, "program", str),
            _get(header, "columns", dict, {}),
            _get(header, "precision", str, "float32"),
            _direct_task(header) if "ports" in header else None,
        )
        if invocation.precision not in PRECISIONS:
            raise FrameError(f"precision {invocation.precision!r} is unknown: use one of {', '.join(PRECISIONS)}.")
        if not all(type(width) is int and width >= 0 for width in invocation.columns.values()):
            raise FrameError("the columns of an invocation are widths: whole numbers from 0 on.")
        return invocation


def ports_of(header: Mapping[str, Any]) -> Ports:
    """The ports a header names."""
    ports = _get(header, "ports", dict)
    return Ports(_get(ports, "rows", str), _get(ports, "weights", str), _get(header, "keys", dict))


def _direct_task(header: Mapping[str, Any]) -> DirectTask:
    direct = DirectTask(
        ports_of(header),
        _get(header, "rows", int),
        _get(header, "part_rows", int),
        _get(header, "weights", str),
        _get(header, "stream", bool, True),
        float(_get(header, "timeout_s", (int, float), DEFAULT_TIMEOUT_S)),
    )
    if direct.rows < 0 or direct.part_rows < 1 or direct.num_parts > MAX_PARTS or not 0 < direct.timeout_s < 1e6:
        raise FrameError("an invocation's rows, part_rows or timeout_s is out of its range.")
    return direct


def _get(header: Mapping[str, Any], name: str, kind: type | tuple[type, ...], default: Any = _NO_DEFAULT) -> Any:
    value = header.get(name, default)
    if value is _NO_DEFAULT or not isinstance(value, kind):
        raise FrameError(f"an invocation's header has no {name!r} of the kind it needs. Deploy the same release.")
    return value


class Stopwatch:
    """Adds up what an invocation spends on each of its steps, by a clock in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._start_s = clock, clock()
        self._spent_s = dict.fromkeys(SPENT_ON, 0.0)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Measures a ``with`` block as time spent on a step; blocks must not be nested."""
        start_s = self._clock()
        try:
            yield
        finally:
            self._spent_s[what] += self._clock() - start_s

    def timings(self) -> dict[str, float]:
        """Milliseconds so far, by step, and in total."""
        spent = {f"{what}_ms": round(1000 * spent_s, 3) for what, spent_s in self._spent_s.items()}
        return {**spent, "total_ms": round(1000 * (self._clock() - self._start_s), 3)}
