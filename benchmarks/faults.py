"""Runs disturbed by random faults: does each reach the undisturbed weights, by itself or by `dorylus resume`?

    python -m benchmarks.faults [--runs 100] [--seed 0] [--places ray processes "memory limit"]

Every run is a `dorylus train` of its own, in one of three places: servers on three Ray nodes (network namespaces of
this machine, so root is needed), dense tasks in processes next to the driver, and a graph larger than the memory limit
on a small disk. One or two faults come at random moments: kill -9 of the driver, a graph server, a parameter server,
a function or a node; SIGSTOP for 5 to 60 s; SIGTERM; a cable out for 5 or 40 s; a store file truncated; a full disk.
Some dense tasks take up to 10 s. A run passes when the program ends with the bits of an undisturbed run, or ends with
one sentence and `dorylus resume` reaches those bits; when nothing hangs; and when no process, file or shared memory
is left.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import table

RESULTS = Path(__file__).parent / "results"
TESTS = Path(__file__).parents[1] / "tests"
HEADINGS = ("run", "place", "faults", "exit codes", "message", "seconds", "passed")
SUMMARY = (
    "place",
    "fault",
    "runs",
    "passed",
    "ended by itself",
    "resumed",
    "recovered after s, median (worst)",
    "longest",
)


def runs(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The outcome of each run as it ends: runs are made in namespaces that nothing can leave."""
    request = {"runs": options.runs, "seed": options.seed, "places": options.places}
    command = [sys.executable, "-m", "ray_bench.isolated", "fault_bench.soak", json.dumps(request)]
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(TESTS), str(TESTS.parent)])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("{"):  # Ray prints there too
                yield json.loads(line)
    if child.returncode != 0:
        yield {"left_by_nodes": [f"the bench ended with code {child.returncode}"]}


def cells(run: Mapping[str, Any]) -> tuple[str, ...]:
    """A run as a line of the table."""
    codes = " ".join(map(str, run["codes"]))
    why = run["error"] or "; ".join(run["left"]) or run["last_line"]
    return (str(run["run"]), run["place"], "; ".join(run["faults"]), codes, why, f"{run['seconds']:.0f}", _yes(run))


def summary(ended: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """A line for each fault in each place; a run with two faults counts for both."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for run in ended:
        for fault in {re.split(r" \(| at ", each)[0] for each in run["faults"]}:
            groups[run["place"], fault].append(run)
    lines = []
    for (place, fault), its in sorted(groups.items()):
        passed, by_itself = (sum(map(test, its)) for test in (_passed, lambda run: run["codes"] == [0]))
        seconds = [run["seconds"] for run in its]
        counts = (str(len(its)), str(passed), str(by_itself), str(sum(len(run["codes"]) > 1 for run in its)))
        lines.append((place, fault, *counts, recovered(its), f"{max(seconds):.0f} s"))
    return lines


def recovered(its: Sequence[Mapping[str, Any]]) -> str:
    """How long a run waited for the recovery of lost servers."""
    seconds = [each for run in its for each in run["recovered_s"]]
    return f"{statistics.median(seconds):.1f} ({max(seconds):.1f})" if seconds else "-"


def _passed(run: Mapping[str, Any]) -> bool:
    return bool(run["passed"])


def _yes(run: Mapping[str, Any]) -> str:
    return "yes" if _passed(run) else "NO"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    ended: list[dict[str, Any]] = []
    left: list[str] = []
    for run in runs(options):
        if "run" in run:
            ended.append(run)
            print(("ok      " if _passed(run) else "FAILED  ") + "  ".join(cells(run)), flush=True)
        else:
            left += run["left_by_nodes"]
    well = f"{sum(map(_passed, ended))} of {len(ended)} runs passed"
    table.show(SUMMARY, summary(ended), well)
    for each in left:
        print(f"LEFT: {each}")
    options.results.mkdir(parents=True, exist_ok=True)
    content = {"machine": table.machine(), "left": left, "runs": ended}
    (options.results / "faults.json").write_text(json.dumps(content, indent=1) + "\n")
    tables = f"{table.markdown(SUMMARY, summary(ended))}\n{table.markdown(HEADINGS, [cells(run) for run in ended])}"
    (options.results / "faults.md").write_text(
        f"`python -m benchmarks.faults --runs {len(ended)}`: {well}.\n\n{tables}"
    )
    return 0 if len(ended) == options.runs and all(map(_passed, ended)) and not left else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of faults and moments")
    parser.add_argument("--places", nargs="+", default=["ray", "processes", "memory limit"])
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
