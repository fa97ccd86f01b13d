"""Results as a table for the terminal, as Markdown for the README and as JSON to compute with."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.box import ASCII_DOUBLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.contender import GIB

HEADINGS = ("shape", "model", "contender", "s/epoch", "peak GiB", "time / ours", "memory / ours", "note")
OURS = "dorylus, all savings"


@dataclass(kw_only=True)
class Row:
    """One contender on one shape; no seconds when it could not run."""

    shape: str
    model: str
    contender: str
    seconds: list[float] = field(default_factory=list)  # of epochs on a quiet machine
    noisy_seconds: list[float] = field(default_factory=list)  # of epochs while others used it
    peak_bytes: int = 0
    note: str = ""

    @property
    def median_s(self) -> float | None:
        measured = self.seconds or self.noisy_seconds
        return statistics.median(measured) if measured else None

    @property
    def remark(self) -> str:
        """The note, with a warning when the machine was never quiet: such a figure is useless."""
        busy = ["BUSY MACHINE"] if self.noisy_seconds and not self.seconds else []
        return ", ".join([*busy, *([self.note] if self.note else [])])


def cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The text of every row, with its ratios to our own row of the same shape and model."""
    own = {(row.shape, row.model): row for row in rows if row.contender == OURS and row.median_s}
    return [_cells_of(row, own.get((row.shape, row.model))) for row in rows]


def _cells_of(row: Row, own: Row | None) -> tuple[str, ...]:
    start = (row.shape, row.model, row.contender)
    if row.median_s is None:
        return (*start, "-", "-", "-", "-", row.remark)
    figures = (f"{row.median_s:.4g}", f"{row.peak_bytes / GIB:.2f}")
    if own is None or own.median_s is None:
        return (*start, *figures, "-", "-", row.remark)
    ratios = (f"{row.median_s / own.median_s:.2f}x", f"{row.peak_bytes / own.peak_bytes:.2f}x")
    return (*start, *figures, *ratios, row.remark)


def show(headings: Sequence[str], lines: Iterable[Sequence[str]], title: str) -> None:
    """Print a table that also reads well in a file or a pipe."""
    table = Table(title=title, box=ASCII_DOUBLE_HEAD, title_justify="left")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < 3 else "right", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    wide = Console(width=400)  # never cut a figure to fit a narrow terminal or a pipe
    Console(width=wide.measure(table).maximum).print(table)


def markdown(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """The same table in Markdown."""
    made = [headings, ["---"] * len(headings), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in made) + "\n"


def machine() -> dict[str, str | int]:
    """The machine of the measurement."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": names[0].split(":", 1)[1].strip() if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def write(folder: Path, name: str, rows: Sequence[Row], command: str) -> None:
    """Write <name>.json and <name>.md to folder."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "command": command,
        "machine": machine(),
        "rows": [asdict(row) | {"median_s": row.median_s} for row in rows],
    }
    (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    (folder / f"{name}.md").write_text(f"`{command}`\n\n" + markdown(HEADINGS, cells(rows)))
