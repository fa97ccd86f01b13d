"""GCN on Pubmed, dense tasks on functions: bounded staleness against the exact pipeline on threads, over seeds.

    python -m benchmarks.functions_accuracy [--services lambda-local http processes] [--paths direct inline] [--seeds 3]

Two servers. `pipe` on functions must give the losses of `pipe` on threads within 1e-4 in every epoch measured (five),
and S=1 reach its test accuracy within half a point on average over seeds. Both are scored at the epoch that was best on
validation: after whatever epoch happens to be the last, one seed's accuracy swings by several points. Functions are
real processes: ministack with AWS's runtime client for `lambda-local`, uvicorn for `http`.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dorylus
from benchmarks import table

ROOT = Path(__file__).parents[2] / "shared" / "data" / "planetoid"
RESULTS = Path(__file__).parent / "results"
SERVICES = ("lambda-local", "http", "processes")
HEADINGS = (
    "functions", "data path", "losses apart", "S=1 test accuracy %", "pipe on threads %", "apart", "stale reads %",
    "s/run",
)  # fmt: skip
SETTINGS: dict[str, Any] = {
    "servers": 2,
    "intervals": 2,
    "lr": 0.01,
    "weight_decay": 5e-4,
    "eval_every": 5,
    "keep": "best",
}
FUNCTIONS = 4
SAME_LOSS, SAME_ACCURACY = 1e-4, 0.005
EXACT_EPOCHS = 5
STOP_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Score:
    """One service by one data path; accuracies are of the same seeds in the same order."""

    service: str
    path: str
    losses_apart: float
    stale: list[float]
    exact: list[float]
    stale_reads: float
    seconds: float

    @property
    def apart(self) -> float:
        return statistics.mean(self.stale) - statistics.mean(self.exact)

    @property
    def reached(self) -> bool:
        return self.losses_apart <= SAME_LOSS and self.apart >= -SAME_ACCURACY

    def line(self) -> tuple[str, ...]:
        """The score as a line of the table."""
        mark = "" if self.reached else " MISSED"
        ours, theirs = (f"{100 * statistics.mean(each):.2f}" for each in (self.stale, self.exact))
        figures = (f"{self.losses_apart:.1e}", ours, theirs, f"{100 * self.apart:+.2f}{mark}")
        return (self.service, self.path, *figures, f"{100 * self.stale_reads:.0f}", f"{self.seconds:.1f}")


def run(graph: dorylus.Graph, epochs: int, seed: int, **settings: Any) -> dorylus.Result:
    """One run of the benchmark's model."""
    model = dorylus.gcn(hidden=16, num_layers=2, dropout=0.5)
    return dorylus.train(graph, model, epochs=epochs, seed=seed, **SETTINGS, **settings)


def losses_apart(graph: dorylus.Graph, functions: dict[str, Any]) -> float:
    """The biggest difference between an epoch's loss on functions and on threads."""
    here, there = (run(graph, EXACT_EPOCHS, 0, **where).losses for where in ({}, functions))
    return max(abs(ours - theirs) for ours, theirs in zip(there, here, strict=True))


def score(
    graph: dorylus.Graph, service: dict[str, Any], path: str, exact: Sequence[float], options: argparse.Namespace
) -> Score:
    """Train on a service once for every seed."""
    functions = {**service, "functions": FUNCTIONS, "data_path": path}
    apart, start = losses_apart(graph, functions), time.perf_counter()
    runs = [run(graph, options.epochs, seed, mode="async", staleness=1, **functions) for seed in range(options.seeds)]
    reads = sum(sum(each.ages.values()) for each in runs)
    made = Score(
        service=service["pool"],
        path=path,
        losses_apart=apart,
        stale=[each.test_accuracy for each in runs],
        exact=list(exact),
        stale_reads=sum(count for each in runs for age, count in each.ages.items() if age > 0) / max(1, reads),
        seconds=(time.perf_counter() - start) / options.seeds,
    )
    print("  ".join(made.line()), file=sys.stderr)
    return made


@contextmanager
def serving(name: str) -> Iterator[dict[str, Any]]:
    """The settings of a run on a service; an HTTP server is started for it."""
    if name != "http":
        yield {"pool": name}
        return
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [sys.executable, "-m", "uvicorn", "dorylus.functions.asgi:app", "--log-level", "warning"]
        server = subprocess.Popen([*command, "--fd", str(listening.fileno())], pass_fds=[listening.fileno()])
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    try:
        yield {"pool": name, "function_url": url}
    finally:
        server.terminate()
        server.wait(STOP_S)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.functions_accuracy")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of the raw ind.pubmed.* files")
    parser.add_argument("--services", nargs="+", choices=SERVICES, default=list(SERVICES))
    parser.add_argument("--paths", nargs="+", choices=("direct", "inline"), default=["direct", "inline"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    graph = dorylus.load("pubmed", root=options.root, download=False).row_normalised()
    exact = [run(graph, options.epochs, seed).test_accuracy for seed in range(options.seeds)]
    scores: list[Score] = []
    for name in options.services:
        with serving(name) as service:
            scores += [score(graph, service, path, exact, options) for path in options.paths]
    lines = [each.line() for each in scores]
    table.show(HEADINGS, lines, f"GCN on Pubmed, 2 servers, {options.epochs} epochs, {options.seeds} seeds")
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "functions_accuracy.md").write_text(table.markdown(HEADINGS, lines))
    content = {"machine": table.machine(), "scores": [asdict(each) for each in scores]}
    (options.results / "functions_accuracy.json").write_text(json.dumps(content, indent=1) + "\n")
    return 0 if all(each.reached for each in scores) else 1


if __name__ == "__main__":
    sys.exit(main())
