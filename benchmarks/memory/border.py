"""Runs in hard groups of the very limit they were given: from the least limit to just above the one that fits."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.memory.group import Group, JobResult, drop_pages, run_outside
from benchmarks.table import machine, markdown
from dorylus.units import format_bytes

HEADINGS = (
    "model", "width", "trained on", "limit", "of", "verdict", "predicted", "measured", "predicted / measured",
    "worst stage", "anonymous", "limit met", "killed", "s",
)  # fmt: skip
GOAL = 0.1  # how far from the measured peak a prediction may be
EPOCHS = 2
SHAPES: dict[str, dict[str, Any]] = {
    "small": {"num_vertices": 400_000, "num_edges": 5_400_000, "num_features": 64, "num_classes": 40},
    "full": {"num_vertices": 1_500_000, "num_edges": 20_000_000, "num_features": 64, "num_classes": 40},
}
LABELS: dict[str, tuple[float, float]] = {"all": (0.98, 0.01), "most": (0.6, 0.2), "few": (0.01, 0.2)}  # train, val


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model and the trained vertices; ``at``: the limits, by name or as text."""

    model: str
    options: Mapping[str, Any]
    labels: str
    at: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    shape: str = "small"
    directed: bool = False

    @property
    def name(self) -> str:
        """The model, as the table has it."""
        kind = self.options.get("aggregator", "")
        return " ".join(part for part in (self.model, kind, "directed" if self.directed else "") if part)

    @property
    def width(self) -> int:
        return self.options["hidden"] * self.options.get("heads", 1)


AROUND = ("below", "above")  # the limit from which on everything fits in memory
THROUGH = ("least", "half", *AROUND)


def _cases(model: str, *cases: tuple[int, str, tuple[str, ...]], **options: Any) -> list[Case]:
    heads = options.get("heads", 1)
    return [
        Case(model=model, options={**options, "hidden": width // heads}, labels=labels, at=at)
        for width, labels, at in cases
    ]


CASES = [
    *_cases("gcn", (16, "few", THROUGH), (128, "most", AROUND), (256, "all", AROUND)),
    *_cases("sage", (64, "most", THROUGH), (16, "all", AROUND), (128, "few", AROUND)),
    *_cases("sage", (64, "most", THROUGH), (128, "all", AROUND), (16, "few", AROUND), aggregator="max"),
    *_cases("gin", (64, "most", THROUGH), (256, "few", AROUND), (32, "all", AROUND)),
    *_cases("gat", (64, "most", THROUGH), (128, "few", AROUND), (16, "all", AROUND), heads=8),
]
REPORTED = [  # runs that were killed at this size once
    *_cases("sage", (64, "most", ("3300MiB",))),
    *_cases("sage", (64, "most", ("4450MiB", "3500MiB")), aggregator="max"),
    *_cases("gin", (64, "most", ("3760MiB",))),
    *_cases("gcn", (128, "most", ("3620MiB",))),
    *_cases("gat", (64, "most", ("3030MiB",)), heads=8),
]


def measure(folder: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for every case and limit."""
    reported = [Case(**{**vars(case), "shape": "full"}) for case in REPORTED] if options.reported else []
    for case in reported or CASES:
        if options.only in f"{case.name} {case.width} {case.labels}":
            for at, limit in limits_of(case, store_of(case, folder), options).items():
                if not options.at or at in options.at:
                    yield row_of(case, at, limit, trained(case, store_of(case, folder), limit, options))


def store_of(case: Case, folder: Path) -> Path:
    """The graph of a case, made if it is not there."""
    store = folder / f"{case.shape}-{case.labels}{'-directed' * case.directed}"
    if not store.exists():
        arguments = {**SHAPES[case.shape], "split": LABELS[case.labels], "directed": case.directed}
        order = {"what": "generate", "store": str(store), "generator": "rmat", "arguments": arguments}
        run_outside(order).checked()
    return store


def order_of(case: Case, store: Path, options: argparse.Namespace) -> dict[str, Any]:
    settings = {**case.settings, "scratch_dir": str(store.parent), "eval_every": 1}
    return {
        "store": str(store), "model": case.model, "options": dict(case.options), "settings": settings,
        "threads": options.threads, "epochs": EPOCHS,
    }  # fmt: skip


def limits_of(case: Case, store: Path, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The limits of a case, each with its plan."""
    order = {**order_of(case, store, options), "what": "plan", "at": list(case.at)}
    found: dict[str, dict[str, Any]] = run_outside(order).checked().report["limits"]
    return found


def trained(case: Case, store: Path, limit: Mapping[str, Any], options: argparse.Namespace) -> JobResult:
    """A run in a hard group of its limit, however it ends."""
    drop_pages(store)
    order = {**order_of(case, store, options), "what": "train", "checkpoints": True}
    order["settings"]["memory"] = limit["limit"]
    with Group("border", limit["limit"]) as group:
        return group.run(order)


def row_of(case: Case, at: str, limit: Mapping[str, Any], ran: JobResult) -> dict[str, Any]:
    # The run's own decision; the plan, if the run was killed before it could report.
    memory = ran.report.get("memory") or {"peak_bytes": limit["peak"], "on_disk": limit["on_disk"]}
    predicted, verdict = memory["peak_bytes"], "fits with spilling" if any(memory["on_disk"].values()) else "fits"
    return {
        "model": case.name,
        "width": case.width,
        "labels": case.labels,
        "shape": case.shape,
        "at": at,
        "limit": limit["limit"],
        "verdict": verdict,
        "predicted": predicted,
        "measured": ran.peak,
        "ratio": predicted / ran.peak,
        "killed": bool(ran.status),
        "refused": ran.refused,
        "parts": ran.parts,
        "errors": ran.errors if ran.status else "",
        **ran.report,
    }


def lines(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The text of the table."""
    return [
        (
            row["model"], str(row["width"]), f"{row['labels']} labels", format_bytes(row["limit"]), row["at"],
            row["verdict"], format_bytes(row["predicted"]), format_bytes(row["measured"]), f"{row['ratio']:.2f}",
            max(row["stages"], key=row["stages"].get) if "stages" in row else "-",
            format_bytes(row["parts"]["anonymous"]), str(row["refused"]), "KILLED" if row["killed"] else "no",
            f"{sum(row['seconds']):.0f}" if "seconds" in row else "-",
        )
        for row in rows
    ]  # fmt: skip


def failures(rows: list[dict[str, Any]]) -> list[str]:
    """The failures."""
    return [
        f"{row['model']} {row['width']}, {row['labels']} labels, limit {format_bytes(row['limit'])}: "
        + ("killed" if row["killed"] else f"predicted / measured is {row['ratio']:.2f}")
        for row in rows
        if row["killed"] or abs(row["ratio"] - 1) > GOAL
    ]


def write(folder: Path, rows: list[dict[str, Any]], name: str) -> None:
    """Leave the rows and their table in a folder; rows of cases that were not run this time stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "memory-limits.json"
    kept = json.loads(path.read_text())["parts"] if path.exists() else {}
    by_case = {_case_of(row): row for row in [*kept.get(name, []), *rows]}
    cases = REPORTED if name == "reported" else CASES
    order = [(case.name, case.width, case.labels, at) for case in cases for at in case.at]
    kept[name] = [by_case[case] for case in order if case in by_case]
    path.write_text(json.dumps({"machine": machine(), "parts": kept}, indent=1) + "\n")
    titles = {
        "grid": ("400,000 vertices, 5.4 million edges", "python -m benchmarks.memory --what border"),
        "reported": ("1.5 million vertices, 20 million edges", "python -m benchmarks.memory --what border --reported"),
    }
    text = "".join(
        f"## {title}, in hard groups of the limit\n\n`{command}`\n\n" + markdown(HEADINGS, lines(kept[part])) + "\n"
        for part, (title, command) in titles.items()
        if part in kept
    )
    (folder / "memory-limits.md").write_text(text)


def _case_of(row: Mapping[str, Any]) -> tuple[str, int, str, str]:
    return row["model"], row["width"], row["labels"], row["at"]
