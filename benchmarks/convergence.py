"""How many epochs asynchrony costs, and what it does to accuracy: pipe against bounded staleness, several seeds.

    python -m benchmarks.convergence [--seeds 5] [--graphs pubmed coauthor_cs communities]

Four servers; dense tasks are answered late, most of them a little, one in twenty by much, so that intervals drift apart
and values really are stale when they are read: in one process on a few cores they hardly ever are. Accuracy is
that of exact forward passes on held-out vertices, with the weights that were best on validation, for every schedule
alike. The target of a graph is 99 % of the validation accuracy that all its pipe runs reach; epochs to target are
counted at evaluations, between which intervals drift apart: an evaluation lets the late ones catch up.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import dorylus
from benchmarks import plot, table
from benchmarks.late_pool import LatePool
from dorylus.runs import MemorySink

DATA = Path(__file__).parents[2] / "shared" / "data"
RESULTS = Path(__file__).parent / "results"
SCHEDULES: Mapping[str, Mapping[str, Any]] = {
    "pipe": {"mode": "pipe"},
    "S=0": {"mode": "async", "staleness": 0},
    "S=1": {"mode": "async", "staleness": 1},
    "S=4": {"mode": "async", "staleness": 4},
}
PAPER = {"S=0": 1.08, "S=1": 1.41}  # epochs to the target, of the exact pipeline's
HEADINGS = (
    "graph", "schedule", "updates", "test accuracy %", "against pipe", "epochs to target", "ratio", "paper's",
    "stale reads", "oldest", "stood at the bound",
)  # fmt: skip


@dataclass
class Runs:
    """All seeds of one graph under one schedule."""

    updates: str
    every: int  # epochs between evaluations
    accuracy: list[float] = field(default_factory=list)
    curves: list[list[float]] = field(default_factory=list)  # validation accuracy at every evaluation
    ages: dict[int, int] = field(default_factory=dict)
    waits: int = 0

    def to_target(self, target: float) -> float | None:
        """The mean over seeds of the first epoch that reaches a validation accuracy; None when one never does."""
        reached = [
            next((n * self.every for n, score in enumerate(curve, 1) if score >= target), None) for curve in self.curves
        ]
        return None if None in reached else statistics.mean(n for n in reached if n is not None)

    @property
    def stale_share(self) -> float:
        """How many of the values read across intervals were of an earlier epoch."""
        total = sum(self.ages.values())
        return sum(count for age, count in self.ages.items() if age > 0) / total if total else 0.0


def load(name: str, options: argparse.Namespace) -> tuple[dorylus.Graph, dict[str, Any]]:
    """A graph and the recipe it is trained by."""
    if name == "pubmed":
        graph = dorylus.load("pubmed", root=options.data / "planetoid").row_normalised()
        return graph, {"hidden": 16, "lr": 0.01, "weight_decay": 5e-4, "epochs": 200}
    if name == "coauthor_cs":
        graph = dorylus.load(str(options.data / "plain" / "coauthor_cs.npz"))
        return graph, {"hidden": 64, "lr": 0.01, "weight_decay": 5e-4, "epochs": 200}
    graph = dorylus.communities(num_vertices=100_000, num_classes=16, signal=0.5, homophily=0.6, seed=0)
    return graph, {"hidden": 32, "lr": 0.01, "weight_decay": 0.0, "epochs": 60}


def delay_s(draw: random.Random, mean_ms: float) -> float:
    """How late an answer is: one in twenty is a straggler."""
    return draw.expovariate(1.0) * mean_ms / 1e3 * (20 if draw.random() < 0.05 else 1)


def train(
    graph: dorylus.Graph, recipe: Mapping[str, Any], settings: Mapping[str, Any], seed: int, options: argparse.Namespace
) -> tuple[dorylus.Result, list[float]]:
    """One run, and its validation accuracy at every evaluation."""
    draw = random.Random(seed)
    log = MemorySink()
    result = dorylus.train(
        graph,
        dorylus.gcn(hidden=recipe["hidden"], num_layers=2, dropout=0.5),
        pool=LatePool(lambda task: delay_s(draw, options.delay_ms)),
        epochs=recipe["epochs"],
        lr=recipe["lr"],
        weight_decay=recipe["weight_decay"],
        servers=options.servers,
        parameter_servers=2,
        intervals=options.intervals,
        threads=options.threads,
        eval_every=options.eval_every,
        keep="best",
        seed=seed,
        sinks=[log],
        **settings,
    )
    return result, [record["val_accuracy"] for record in log.records if record["kind"] == "evaluation"]


def measure(name: str, options: argparse.Namespace) -> dict[str, Runs]:
    """Every schedule on one graph, seed by seed, so that all run under the same load of the machine."""
    graph, recipe = load(name, options)
    runs = {schedule: Runs("", options.eval_every) for schedule in SCHEDULES}
    for seed in range(options.seeds):
        for schedule, settings in SCHEDULES.items():
            result, curve = train(graph, recipe, settings, seed, options)
            each = runs[schedule]
            each.updates = result.config.weight_update
            each.accuracy.append(result.test_accuracy)
            each.curves.append(curve)
            each.waits += result.waits
            for age, count in result.ages.items():
                each.ages[age] = each.ages.get(age, 0) + count
            print(f"{name} {schedule} seed {seed}: {100 * result.test_accuracy:.2f} %", file=sys.stderr)
    return runs


def target_of(runs: Mapping[str, Runs]) -> float:
    """A little less than the validation accuracy that every pipe run reaches."""
    return 0.99 * min(max(curve) for curve in runs["pipe"].curves)


def lines(name: str, runs: Mapping[str, Runs]) -> list[tuple[str, ...]]:
    """The table's rows for one graph."""
    target, pipe = target_of(runs), runs["pipe"]
    base, exact = pipe.to_target(target), 100 * statistics.mean(pipe.accuracy)
    rows = []
    for schedule, each in runs.items():
        mean, needed = 100 * statistics.mean(each.accuracy), each.to_target(target)
        spread = 100 * statistics.stdev(each.accuracy) if len(each.accuracy) > 1 else 0.0
        ratio = f"{needed / base:.2f}" if needed and base else "not always reached"
        oldest = str(max(each.ages, default=0))
        epochs = f"{needed:.1f}" if needed else "-"
        rows.append(
            (
                name, schedule, each.updates, f"{mean:.2f} ± {spread:.2f}", f"{mean - exact:+.2f}", epochs, ratio,
                f"{PAPER[schedule]:.2f}" if schedule in PAPER else "-", f"{100 * each.stale_share:.1f} %", oldest,
                f"{each.waits / len(each.accuracy):,.0f} times",
            )
        )  # fmt: skip
    return rows


def report(all_runs: Mapping[str, Mapping[str, Runs]], options: argparse.Namespace) -> int:
    """Print the table; save it, the figures and the plot; fails where S=0 or S=1 is 0.5 points off."""
    rows = [line for name, runs in all_runs.items() for line in lines(name, runs)]
    title = f"{options.servers} servers x {options.intervals} intervals, {options.seeds} seeds, answers late by "
    table.show(
        HEADINGS, rows, title + f"{options.delay_ms:g} ms, one in twenty by {20 * options.delay_ms:g} ms, on average"
    )
    curves = {name: {s: _mean(r.curves) for s, r in runs.items()} for name, runs in all_runs.items()}
    (options.results / "convergence.svg").write_text(plot.curves(curves, "epoch", "validation accuracy"))
    gaps = [
        abs(statistics.mean(runs[s].accuracy) - statistics.mean(runs["pipe"].accuracy))
        for runs in all_runs.values()
        for s in PAPER
    ]
    return 0 if max(gaps) <= 0.005 else 1


def _mean(curves: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.mean(scores) for scores in zip(*curves, strict=True)]


def keep(name: str, runs: Mapping[str, Runs], folder: Path) -> None:
    """Save a graph's runs, so that several calls can fill the table."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {schedule: asdict(each) for schedule, each in runs.items()}
    (folder / f"convergence-{name}.json").write_text(json.dumps(content) + "\n")


def kept(name: str, folder: Path) -> dict[str, Runs]:
    """The runs that :func:`keep` saved."""
    runs = {s: Runs(**each) for s, each in json.loads((folder / f"convergence-{name}.json").read_text()).items()}
    for each in runs.values():
        each.ages = {int(age): count for age, count in each.ages.items()}
    return runs


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convergence", description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=["pubmed", "coauthor_cs", "communities"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--intervals", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--eval-every", type=int, default=5)
    parser.add_argument("--delay-ms", type=float, default=0.4, help="mean delay of a dense task's answer")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of planetoid/ and plain/")
    parser.add_argument("--kept", action="store_true", help="make table and plot of what earlier calls measured")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    for name in () if options.kept else options.graphs:
        keep(name, measure(name, options), options.results)
    return report({name: kept(name, options.results) for name in options.graphs}, options)


if __name__ == "__main__":
    sys.exit(main())
