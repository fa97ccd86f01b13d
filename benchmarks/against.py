"""This checkout against another one: whether an epoch of a graph that fits in memory has become slower.

    python -m benchmarks.against OTHER_PYTHON [--models gcn sage gin gat] [--turns 30] [--placements 3]
    python -m benchmarks.against OTHER_PYTHON --models reddit     # 46,000 vertices, 11.5M edges, GCN 602-128-41

OTHER_PYTHON is the interpreter of an environment in which the other checkout is installed. Both train the same graph,
each in a process of its own, and take turns epoch by epoch, so that what else the machine does meets both. A process
has its memory where it happens to lie: the pair is made anew for every placement, and each has its own ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Self

from benchmarks.table import machine, markdown, show

RESULTS = Path(__file__).parent / "results"
WORKER = Path(__file__).parent / "against_worker.py"
MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "gcn": ("gcn", {"hidden": 64}),
    "sage": ("sage", {"hidden": 64}),
    "gin": ("gin", {"hidden": 64}),
    "gat": ("gat", {"hidden": 8, "heads": 4}),
    "reddit": ("gcn", {"hidden": 128, "dropout": 0.0}),
}
REDDIT = {"vertices": 46_000, "degree": 250, "features": 602, "classes": 41}
HEADINGS = ("model", "the other, s/epoch", "this one, s/epoch", "ratio", "ratio of each placement")
WARM_UP = 3  # epochs that do not count
DEADLINE_S = 600.0


class Contender:
    """A process that trains when it is told to."""

    def __init__(self, python: str, store: Path, model: str, options: argparse.Namespace) -> None:
        name, its = MODELS[model]
        sizes = {"vertices": options.vertices, "degree": options.degree, "features": 64, "classes": 16}
        graph = REDDIT if model == "reddit" else sizes
        order = {"store": str(store), "model": name, "options": its, "threads": options.threads, **graph}
        # -P: beside the worker lie modules of benchmarks, which are not the other checkout's.
        command = [python, "-P", str(WORKER), json.dumps(order)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def epoch(self) -> float:
        """Seconds of an epoch, now."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("epoch\n")
        self._process.stdin.flush()
        told = self._process.stdout.readline()
        if not told:
            raise SystemExit(f"a contender ended with exit status {self._process.wait(DEADLINE_S)}.")
        return float(told)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(DEADLINE_S)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    rows = []
    with tempfile.TemporaryDirectory(prefix="dorylus-against-") as folder:
        for model in options.models:
            pairs = [
                placement(Path(folder) / ("reddit" if model == "reddit" else "store"), model, options)
                for _ in range(options.placements)
            ]
            rows.append({"model": model, "placements": pairs})
    lines = [line(row) for row in rows]
    show(HEADINGS, lines, f"{options.turns} turns in each of {options.placements} placements")
    write(options.results, rows, lines)
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against")
    parser.add_argument("other", help="the interpreter of the other checkout")
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=["gcn", "sage", "gin", "gat"])
    parser.add_argument("--vertices", type=int, default=200_000)
    parser.add_argument("--degree", type=int, default=30)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--placements", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


def placement(store: Path, model: str, options: argparse.Namespace) -> list[tuple[float, float]]:
    """Seconds of the other's epoch and of ours, turn by turn."""
    # The other comes first: it writes the graph, in a format that the newer one can read.
    with Contender(options.other, store, model, options) as other:
        other.epoch()
        with Contender(sys.executable, store, model, options) as ours:
            for contender in (other, ours):
                for _ in range(WARM_UP):
                    contender.epoch()
            turns = []
            for turn in range(options.turns):
                if turn % 2:
                    turns.append((other.epoch(), ours.epoch()))
                else:
                    own = ours.epoch()
                    turns.append((other.epoch(), own))
            return turns


def line(row: dict[str, object]) -> tuple[str, ...]:
    """The text of a model's row."""
    placements: list[list[tuple[float, float]]] = row["placements"]  # type: ignore[assignment]
    ratios = [statistics.median(own / other for other, own in turns) for turns in placements]
    seconds = [statistics.median(turn[side] for turn in chain(*placements)) for side in (0, 1)]
    each = ", ".join(f"{ratio:.3f}" for ratio in ratios)
    return (str(row["model"]), *(f"{each_s:.4f}" for each_s in seconds), f"{statistics.median(ratios):.3f}x", each)


def write(folder: Path, rows: list[dict[str, object]], lines: list[tuple[str, ...]]) -> None:
    """Leave against.json and against.md in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "against.json").write_text(json.dumps({"machine": machine(), "rows": rows}) + "\n")
    text = "`python -m benchmarks.against OTHER_PYTHON`\n\n" + markdown(HEADINGS, lines)
    (folder / "against.md").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
