"""Two checkouts side by side: do the same seeded runs give the same bits, and does an epoch take the same time?

    python -m benchmarks.against BEFORE AFTER [--runs gcn,gat] [--turns 20] [--placements 1]
    python -m benchmarks.against BEFORE AFTER --losses-only     # no timing
    python -m benchmarks.against BEFORE                         # AFTER is the interpreter that runs this module

BEFORE and AFTER are the Python interpreters of two environments, each with one checkout of dorylus installed. Every run
is made by both, each in a process of its own, with the public names alone. Compared bit by bit: the loss of every
epoch, the final weights, the predictions and scores. Then both train on in turns, one epoch at a time (before, after,
after, before, ...), so that the load of the machine affects both. Where the memory of a process lies changes its speed
by some percent: every placement is a new pair of processes. The exit code is 1 if any run differs or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Self

from benchmarks.table import machine, markdown, show

RESULTS = Path(__file__).parent / "results"
WORKER = Path(__file__).parent / "against_worker.py"
HEADINGS = ("run", "losses identical", "weights", "predictions", "before, ms", "after, ms", "ratio of a turn, median")
WARM_UP = 2  # epochs that do not count
DEADLINE_S = 60.0  # for a worker to end


@dataclass(frozen=True, kw_only=True)
class Run:
    """A seeded run of the table. Intervals are fixed where the choice depends on the memory of the process."""

    model: str  # a builder of dorylus, or "edge" or "mixed" of the worker
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    vertices: int = 60_000
    resumed: bool = False  # stopped half way, and continued from its checkpoint


FOUR = {"servers": 4, "parameter_servers": 2}
RUNS = {
    "gcn": Run(model="gcn", options={"hidden": 64}),
    # Without dropout the first gather is made once, before the first epoch.
    "gcn-4-servers": Run(model="gcn", options={"hidden": 64, "dropout": 0.0}, settings=FOUR),
    # With one thread the order of events, and so what is read, is the same every time.
    "gcn-async": Run(
        model="gcn", options={"hidden": 64},
        settings=FOUR | {"mode": "async", "staleness": 1, "weight_update": "async", "intervals": 3, "threads": 1},
    ),
    "gat": Run(model="gat", options={"hidden": 8, "heads": 4}),
    "gat-no-pipe": Run(
        model="gat", options={"hidden": 8, "heads": 4},
        settings=FOUR | {"mode": "no_pipe", "precision": "bf16", "ghost_precision": "bf16"},
    ),
    "sage-mean": Run(model="sage", options={"hidden": 64}, settings={"weight_decay": 5e-4, "keep": "best"}),
    "sage-max": Run(model="sage", options={"hidden": 32, "aggregator": "max"}, settings=FOUR),
    "gin": Run(model="gin", options={"hidden": 64, "train_eps": True}, settings={"reorder": "degree"}),
    "edge-layer": Run(model="edge", settings=FOUR, vertices=20_000),
    "mixed": Run(model="mixed", settings=FOUR | {"intervals": 3}),
    # A run that fits into 640 MiB and needs at least 460: part of it is in files.
    "memory": Run(
        model="gcn", options={"hidden": 64}, settings={"memory": "500MiB", "intervals": 8}, vertices=150_000
    ),
    "processes": Run(
        model="gcn", options={"hidden": 64},
        settings={"pool": "processes", "functions": 2, "data_path": "direct", "servers": 2, "intervals": 2},
    ),
    "ray": Run(model="gcn", options={"hidden": 64}, settings={"cluster": "ray", "servers": 2, "threads": 1}),
    "resumed": Run(
        model="sage", options={"hidden": 64}, resumed=True,
        settings={
            "servers": 2, "checkpoint_every": 3, "lr_schedule": "StepLR", "lr_schedule_options": {"step_size": 2},
        },
    ),
}  # fmt: skip


class WorkerError(Exception):
    """A worker has ended without a reply."""


class Worker:
    """A process of one checkout that makes a run, and then an epoch for every line it reads."""

    def __init__(self, side: str, run: Run, options: argparse.Namespace, parent: Path) -> None:
        self._side, folder = side, parent / side[0]  # a short name: Ray creates sockets below it
        folder.mkdir()
        settings = {"threads": options.threads, **run.settings}
        request = asdict(run) | {"settings": settings, "folder": str(folder)}
        environment = worker_environment() | (ray_environment(folder) if settings.get("cluster") == "ray" else {})
        self._process = subprocess.Popen(
            [getattr(options, side), str(WORKER), json.dumps(request)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder,
        )  # fmt: skip

    def reply(self) -> dict[str, Any]:
        """The next line of JSON; libraries may print other lines."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise WorkerError(f"{self._side}: exit status {self._process.wait(DEADLINE_S)}")

    def epoch(self) -> float:
        """Seconds of one more epoch."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # reply reports a process that has ended
            self._process.stdin.write("epoch\n")
            self._process.stdin.flush()
        return self.reply()["seconds"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def worker_environment() -> dict[str, str]:
    """One thread per library, and no module path that would let one checkout import the other."""
    # Safe path: the folder of the worker holds modules of benchmarks, which do not belong to either checkout.
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return kept | threads | {"PYTHONSAFEPATH": "1"}


def ray_environment(folder: Path) -> dict[str, str]:
    """Settings that keep Ray on this machine: no usage report, no request to a cloud's metadata service."""
    (folder / "ray_bootstrap_config.yaml").write_text("provider: {type: local}\n")
    return {
        "HOME": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9/",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # or Ray listens on the address of the machine, not on loopback
        "RAY_enable_metrics_collection": "0",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    rows = [measure(name, options) for name in options.runs]
    lines = [line(row) for row in rows]
    conclusion = summary(rows)
    show(HEADINGS, lines, f"before: {options.before}, after: {options.after}")
    print(conclusion)
    write(options.results, rows, lines, conclusion)
    return 0 if all(identical(row) for row in rows) else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__.splitlines()[0])
    parser.add_argument("before", help="the interpreter of the checkout to compare with")
    parser.add_argument("after", nargs="?", default=sys.executable, help="that of the other one; default: this one")
    parser.add_argument("--runs", type=chosen, default=list(RUNS), help=f"names with commas between: {','.join(RUNS)}")
    parser.add_argument("--turns", type=int, default=20, help="timed epochs of each placement")
    parser.add_argument("--placements", type=int, default=1, help="pairs of processes of each run")
    parser.add_argument("--losses-only", action="store_true", help="compare bits, and do not time epochs")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


def chosen(names: str) -> list[str]:
    """The runs of a list with commas."""
    if unknown := set(names.split(",")) - set(RUNS):
        raise argparse.ArgumentTypeError(f"no run {', '.join(sorted(unknown))}; there are {', '.join(RUNS)}")
    return names.split(",")


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """A row: what both checkouts report of a run, and the seconds of their epochs in turns, for each placement."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    row: dict[str, Any] = {"run": name, "pairs": [], "turns": []}
    try:
        for _ in range(options.placements):
            pair, turns = placement(RUNS[name], options)
            row["pairs"].append(pair)
            row["turns"].append(turns)
    except WorkerError as error:
        row["failed"] = str(error)
    return row


def placement(run: Run, options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[tuple[float, float]]]:
    """The reports of a new pair of processes, and the seconds of their epochs before and after."""
    # Not in /tmp, which may be memory: files of a run with a memory limit belong on a disk.
    with (
        tempfile.TemporaryDirectory(prefix="vs-", dir="/var/tmp") as folder,
        Worker("before", run, options, Path(folder)) as before,
    ):
        reports = [before.reply()]
        with Worker("after", run, options, Path(folder)) as after:
            reports.append(after.reply())
            check_apart(options, *(each.pop("loaded") for each in reports))  # paths, which results do not keep
            return reports, [] if options.losses_only else take_turns(before, after, options.turns)


def check_apart(options: argparse.Namespace, before: Sequence[str], after: Sequence[str]) -> None:
    """Refuse two environments that load the same files: a comparison of a checkout with itself is always equal."""
    if (shared := sorted({*before} & {*after})) and options.before != options.after:
        raise SystemExit(
            f"{options.before} and {options.after} both load {', '.join(shared)}: install one checkout in each."
        )


def take_turns(before: Worker, after: Worker, num_turns: int) -> list[tuple[float, float]]:
    """Seconds of an epoch of each, turn by turn; the order alternates."""
    for worker in (before, after):
        for _ in range(WARM_UP):
            worker.epoch()
    turns = []
    for turn in range(num_turns):
        if turn % 2:
            after_s = after.epoch()
            turns.append((before.epoch(), after_s))
        else:
            turns.append((before.epoch(), after.epoch()))
    return turns


def first_difference(before: Sequence[str], after: Sequence[str]) -> int | None:
    """The first epoch, counted from 1, whose loss is not the same; None if there is none."""
    if len(before) != len(after):
        return min(len(before), len(after)) + 1
    return next((epoch for epoch, (one, other) in enumerate(zip(before, after, strict=True), 1) if one != other), None)


def agreement(row: dict[str, Any]) -> tuple[str, str, str]:
    """Whether losses, weights and predictions are identical in all pairs of a row: "yes", "no" or where not."""
    if "failed" in row:
        return row["failed"], "-", "-"
    epochs = [first_difference(before["losses"], after["losses"]) for before, after in row["pairs"]]
    first = min((epoch for epoch in epochs if epoch is not None), default=None)
    same = [all(before[what] == after[what] for before, after in row["pairs"]) for what in ("weights", "predictions")]
    losses = "yes" if first is None else f"no, from epoch {first}"
    return losses, *("yes" if each else "no" for each in same)  # type: ignore[return-value]


def identical(row: dict[str, Any]) -> bool:
    return agreement(row) == ("yes", "yes", "yes")


def ratio(row: dict[str, Any]) -> float | None:
    """Time of an epoch after, as a multiple of that before: the median over turns, then over placements."""
    medians = [statistics.median(after / before for before, after in turns) for turns in row["turns"] if turns]
    return statistics.median(medians) if medians else None


def line(row: dict[str, Any]) -> tuple[str, ...]:
    """The text of a row."""
    start, its_ratio = (row["run"], *agreement(row)), ratio(row)
    if its_ratio is None:
        return (*start, "-", "-", "-")
    medians = [statistics.median(turn[side] for turn in chain(*row["turns"])) for side in (0, 1)]
    return (*start, *(f"{seconds * 1e3:.1f}" for seconds in medians), f"{its_ratio:.3f}")


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """The last line: how many runs are identical, and the median of all ratios."""
    ratios = [each for row in rows if (each := ratio(row)) is not None]
    timing = f"median {statistics.median(ratios):.3f}" if ratios else "not measured"
    return f"{sum(map(identical, rows))} of {len(rows)} runs bit-identical; epoch time ratio {timing}"


def write(folder: Path, rows: Sequence[dict[str, Any]], lines: Sequence[tuple[str, ...]], conclusion: str) -> None:
    """Write against.json and against.md to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine(), "conclusion": conclusion, "rows": list(rows)}
    (folder / "against.json").write_text(json.dumps(content, indent=1) + "\n")
    text = "`python -m benchmarks.against BEFORE AFTER`\n\n" + markdown(HEADINGS, lines) + f"\n{conclusion}\n"
    (folder / "against.md").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
