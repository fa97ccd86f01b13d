"""Predicted and measured peaks, for shapes that the memory model was not fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.memory.group import Group, JobResult, drop_pages, run_outside
from dorylus.units import format_bytes

HEADINGS = (
    "shape", "model", "limit", "verdict", "predicted", "measured", "predicted / measured", "worst stage",
    "anonymous", "page cache",
)  # fmt: skip
GOAL = 0.15  # how far from the measured peak a prediction may be


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph, a model, and limits: each that is not None forces files."""

    name: str
    generator: str
    arguments: Mapping[str, Any]
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    limits: tuple[str | None, ...]


CASES = (
    Case(
        name="1M vertices, 12M edges, 100 features",
        generator="communities",
        arguments={"num_vertices": 1_000_000, "average_degree": 12.0, "num_features": 100, "num_classes": 18},
        model="gcn",
        options={"hidden": 32, "num_layers": 4, "dropout": 0.2},
        limits=("800MiB",),
    ),
    Case(
        name="500k vertices, 15M edges, 100 features",
        generator="rmat",
        arguments={"num_vertices": 500_000, "num_edges": 15_000_000, "num_features": 100, "num_classes": 40},
        model="gat",
        options={"hidden": 8, "heads": 8, "dropout": 0.6},
        limits=("900MiB", None),
    ),
    Case(
        name="600k vertices, 12M edges, 64 features, directed",
        generator="rmat",
        arguments={
            "num_vertices": 600_000, "num_edges": 12_000_000, "num_features": 64, "num_classes": 21, "directed": True
        },
        model="sage",
        options={"hidden": 96, "num_layers": 3, "dropout": 0.0},
        limits=("1000MiB", None),
    ),
    Case(
        name="2M vertices, 16M edges, 32 features",
        generator="rmat",
        arguments={"num_vertices": 2_000_000, "num_edges": 16_000_000, "num_features": 32, "num_classes": 14},
        model="gin",
        options={"hidden": 48, "dropout": 0.5},
        limits=("1300MiB",),
    ),
    Case(
        name="300k vertices, 9M edges, 64 features",
        generator="communities",
        arguments={"num_vertices": 300_000, "average_degree": 30.0, "num_features": 64, "num_classes": 10},
        model="gcn",
        options={"hidden": 256, "dropout": 0.5},
        limits=("700MiB",),
    ),
    Case(
        name="1M vertices, 10M edges, 80 features, directed",
        generator="rmat",
        arguments={
            "num_vertices": 1_000_000, "num_edges": 10_000_000, "num_features": 80, "num_classes": 28, "directed": True
        },
        model="sage",
        options={"hidden": 64, "dropout": 0.1},
        settings={"precision": "bf16"},
        limits=("1GiB",),
    ),
)  # fmt: skip


def measure(folder: Path, threads: int, only: str = "") -> list[dict[str, Any]]:
    """A row for every case and limit."""
    rows = []
    for number, case in enumerate(CASES):
        if only not in f"{case.model} {case.name}":
            continue
        store = folder / f"case-{number}"
        order = {"what": "generate", "store": str(store), "generator": case.generator, "arguments": case.arguments}
        run_outside(order).checked()
        rows += [row_of(case, limit, trained(case, store, limit, threads)) for limit in case.limits]
    return rows


def trained(case: Case, store: Path, limit: str | None, threads: int) -> JobResult:
    """Two epochs in a group without a limit, of a store of which nothing is in the page cache."""
    drop_pages(store)
    limited = {} if limit is None else {"memory": limit, "scratch_dir": str(store.parent)}
    order = {
        "what": "train", "store": str(store), "model": case.model, "options": case.options,
        "settings": {**case.settings, **limited}, "threads": threads, "epochs": 2,
    }  # fmt: skip
    with Group("predicted") as group:
        return group.run(order).checked()


def row_of(case: Case, limit: str | None, ran: JobResult) -> dict[str, Any]:
    chosen = ", ".join(f"{name}={value}" for name, value in {**case.options, **case.settings}.items())
    return {
        "shape": case.name,
        "model": f"{case.model} {chosen}",
        "limit": limit or "none",
        "measured": ran.peak,
        "parts": ran.parts,
        "ratio": ran.report["plan"]["peak"] / ran.peak,
        **ran.report,
    }


def lines(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The text of the table."""
    return [
        (
            row["shape"], row["model"], row["limit"], row["plan"]["verdict"], format_bytes(row["plan"]["peak"]),
            format_bytes(row["measured"]), f"{row['ratio']:.2f}", max(row["stages"], key=row["stages"].get),
            format_bytes(row["parts"]["anonymous"]), format_bytes(row["parts"]["page cache"]),
        )
        for row in rows
    ]  # fmt: skip


def failures(rows: list[dict[str, Any]]) -> list[str]:
    """The failures."""
    return [
        f"{row['model']} on {row['shape']}, limit {row['limit']}: predicted / measured is {row['ratio']:.2f}"
        for row in rows
        if abs(row["ratio"] - 1) > GOAL
    ]
