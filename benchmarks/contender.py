"""A contender in a process of its own, with orders over a pipe, so that all can take turns within one run.

Parent: `Contender(...)`, then `epochs(k)` any number of times. Child (`python -m benchmarks.contender`): one JSON line
in, one JSON line out. Peak memory is the child's own high-water mark, with nothing subtracted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from benchmarks.shapes import SHAPES

GIB = 2**30


class ContenderError(RuntimeError):
    """The child process died or answered nonsense; carries the end of what it wrote to stderr."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A contender: a row of the table."""

    label: str
    builder: str  # a key of peers.BUILDERS, or "ours"
    shape: str
    model: str  # "gcn" or "gat"
    savings: Mapping[str, bool] = field(default_factory=dict)
    dropout: float = 0.0
    once: bool = False  # too slow and too big to take every turn: one epoch in one turn, alone
    needs_bytes: int = 0

    @property
    def trained(self) -> str:
        """The model as the table names it."""
        return f"{self.model}, dropout {self.dropout:g}" if self.dropout else self.model


class Contender:
    """The parent's end."""

    def __init__(self, entry: Entry, folder: Path, recipe: Mapping[str, float]):
        self.entry = entry
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.contender"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(int(recipe["threads"]))},
        )
        self.ready = self._ask(asdict(entry) | {"folder": str(folder), "recipe": {**recipe, "dropout": entry.dropout}})

    def epochs(self, count: int) -> list[float]:
        """Seconds of each of the next count epochs."""
        return self._ask({"epochs": count})["seconds"]

    @property
    def pid(self) -> int:
        """The child's process number."""
        return self._child.pid

    def peak_bytes(self) -> int:
        """The most memory the child has held so far."""
        return self._ask({"epochs": 0})["peak_bytes"]

    def _ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps(order) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            pass  # the reply below is empty, and stderr has the reason
        line = self._child.stdout.readline()
        if not line:
            code = self._child.wait()
            self._stderr.seek(0)
            tail = self._stderr.read().decode(errors="replace")[-1500:]
            raise ContenderError(f"{self.entry.label} ({self.entry.shape}) ended with code {code}.\n{tail}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout, self._stderr):
            if stream is not None:
                stream.close()


class Trains(Protocol):
    """The interface of what the child trains."""

    def epochs(self, count: int) -> list[float]: ...


def high_water_mark() -> int:
    """Peak resident bytes of this process (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ContenderError("/proc/self/status has no VmHWM line: peak memory can be measured on Linux only.")


def available_bytes() -> int:
    """Memory that a new process could take now without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ContenderError("/proc/meminfo has no MemAvailable line: the benchmark needs Linux.")


def build(order: Mapping[str, Any]) -> Trains:
    """The contender an order describes."""
    folder, shape = Path(order["folder"]), SHAPES[order["shape"]]
    if order["builder"] == "ours":
        from benchmarks.ours import Ours

        return Ours(folder / "store", order["model"], shape, order["recipe"], order["savings"])
    from benchmarks import peers

    recipe = peers.Recipe(**order["recipe"])
    return peers.build(order["builder"], folder / "arrays", shape, recipe)


def serve() -> None:
    """Build the contender named on the first line of stdin, then train the number of epochs of each further line."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing a library prints may reach the pipe
    contender = build(json.loads(sys.stdin.readline()))
    _reply(replies, [])
    for line in sys.stdin:
        count = json.loads(line)["epochs"]
        _reply(replies, contender.epochs(count) if count else [])


def _reply(replies: Any, seconds: list[float]) -> None:
    replies.write(json.dumps({"seconds": seconds, "peak_bytes": high_water_mark()}) + "\n")
    replies.flush()


if __name__ == "__main__":
    serve()
