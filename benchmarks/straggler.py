"""One slow interval: its cost without a pipeline, with one, and with bounded asynchrony.

    python -m benchmarks.straggler [--delay-ms 10] [--factor 10] [--rounds 5]

Dense tasks are answered some milliseconds late, as remote functions would; those of one interval, `factor` times as
late. The three schedules take turns in one process, each with its own trainer over the same graph. Next to every epoch
time is the time without the straggler: the difference is its cost.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dorylus
from benchmarks import table
from benchmarks.late_pool import LatePool

RESULTS = Path(__file__).parent / "results"
SCHEDULES: Mapping[str, Mapping[str, Any]] = {
    "no_pipe": {"mode": "no_pipe"},
    "pipe": {"mode": "pipe"},
    "bounded(0)": {"mode": "async", "staleness": 0},
    "bounded(1)": {"mode": "async", "staleness": 1},
}
HEADINGS = ("schedule", "ms/epoch", "with one slow interval", "it costs", "oldest value read")


class Contender:
    """A trainer under one schedule, with or without a slow interval."""

    def __init__(self, graph: dorylus.Graph, settings: Mapping[str, Any], options: argparse.Namespace, factor: float):
        delay_s = options.delay_ms / 1e3
        slow = options.servers * options.intervals // 2
        pool = LatePool(lambda task: delay_s * (factor if task.interval == slow else 1.0))
        self.trainer = dorylus.Trainer(
            graph,
            dorylus.gcn(hidden=options.hidden, num_layers=2, dropout=0.5),
            pool=pool,
            epochs=10**9,
            servers=options.servers,
            intervals=options.intervals,
            threads=options.threads,
            eval_every=0,
            **settings,
        )

    def turn(self, epochs: int) -> float:
        """Milliseconds an epoch over some epochs, counted from drained to drained."""
        start = time.perf_counter()
        self.trainer.run(epochs)
        return 1e3 * (time.perf_counter() - start) / epochs


def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Epoch times of every schedule, with and without the straggler, the median over turns."""
    graph = dorylus.communities(
        num_vertices=options.vertices, average_degree=options.degree, num_features=64, num_classes=16, seed=0
    )
    contenders = {
        (name, factor): Contender(graph, settings, options, factor)
        for name, settings in SCHEDULES.items()
        for factor in (1.0, options.factor)
    }
    times: dict[tuple[str, float], list[float]] = {key: [] for key in contenders}
    for contender in contenders.values():
        contender.turn(2)
    for turn in range(options.rounds):
        print(f"round {turn + 1} of {options.rounds}", file=sys.stderr)
        for key, contender in contenders.items():
            times[key].append(contender.turn(options.epochs))
    figures = {}
    for name in SCHEDULES:
        even, slow = (statistics.median(times[name, factor]) for factor in (1.0, options.factor))
        ages = contenders[name, options.factor].trainer.result().ages
        figures[name] = {"even_ms": even, "slow_ms": slow, "oldest": max(ages, default=0)}
    for contender in contenders.values():
        contender.trainer.close()
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    figures = measure(options)
    rows = [
        (
            name,
            f"{each['even_ms']:.1f}",
            f"{each['slow_ms']:.1f}",
            f"+{each['slow_ms'] - each['even_ms']:.1f}",
            f"{each['oldest']} epochs",
        )
        for name, each in figures.items()
    ]
    table.show(HEADINGS, rows, f"dense tasks {options.delay_ms:g} ms late, one interval {options.factor:g} times that")
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "straggler.json").write_text(json.dumps(figures, indent=1) + "\n")
    order = [figures[name]["slow_ms"] for name in ("bounded(1)", "pipe", "no_pipe")]
    return 0 if order == sorted(order) else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.straggler", description=__doc__)
    parser.add_argument("--vertices", type=int, default=60_000)
    parser.add_argument("--degree", type=float, default=60)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--intervals", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--delay-ms", type=float, default=10.0)
    parser.add_argument("--factor", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6, help="epochs of a turn")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
