"""A recursive-matrix graph that fits no cheap machine: ingested, then trained under one limit after another."""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.edge_files import write_edges
from benchmarks.memory.group import Group, JobResult, drop_pages
from dorylus.units import format_bytes, parse_bytes

HEADINGS = (
    "run", "limit", "set-up s", "s/epoch", "slowdown", "peak", "predicted", "read/epoch", "written/epoch",
    "predicted by kind",
)  # fmt: skip
FEATURES, HIDDEN, CLASSES = 32, 48, 50
TRAINED_ON = 0.1  # of the vertices
INGEST_MEMORY = "4GiB"
BLOCK = 1 << 18

Block = Callable[[int], NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Size:
    """A graph and the limits it is trained under. ``edges``: those to be read, of which repeats are left out."""

    vertices: int
    edges: int
    undirected: bool
    memory: tuple[str, ...]


SIZES = {
    "big": Size(vertices=1 << 25, edges=1_050_000_000, undirected=False, memory=("16GiB", "8GiB")),
    "friendster": Size(vertices=65_608_366, edges=1_870_000_000, undirected=True, memory=("16GiB",)),
}


def measure(folder: Path, options: argparse.Namespace, size: Size) -> list[dict[str, Any]]:
    """A row for the ingest, with its figures in a file next to the store, and one for every limit."""
    store = options.store or folder / "store"
    figures = store.with_name(f"{store.name}.ingest.json")
    if not store.exists():
        figures.write_text(json.dumps(ingested(folder, store, options, size)))
    rows = [json.loads(figures.read_text())]
    for limit in options.memory or size.memory:
        ran = trained(store, folder, limit, options)
        rows.append({"run": "train", "limit": limit, "peak": ran.peak, "parts": ran.parts, **ran.report})
    return rows


def ingested(folder: Path, store: Path, options: argparse.Namespace, size: Size) -> dict[str, Any]:
    """Writes edges, features, labels and the trained vertices; makes a store of them in a group; deletes them."""
    edges, vertices = folder / "edges.i32", options.vertices or size.vertices
    write_edges(edges, vertices, options.edges or size.edges, seed=0)
    rows = write_vertices(folder, vertices)
    settings = {
        "memory": INGEST_MEMORY, "num_vertices": vertices, "undirected": size.undirected,
        **{name: str(path) for name, path in rows.items()},
    }  # fmt: skip
    order = {"what": "ingest", "edges": str(edges), "store": str(store), "settings": settings}
    with Group("ingest", parse_bytes(INGEST_MEMORY)) as group:
        ran = group.run(order).checked()
    for path in (edges, *rows.values()):
        path.unlink()
    return {"run": "ingest", "limit": INGEST_MEMORY, "peak": ran.peak, "parts": ran.parts, **ran.report}


def write_vertices(folder: Path, count: int) -> dict[str, Path]:
    """Files with a row a vertex, by the name that the ingest gives them."""
    rng = np.random.default_rng(1)
    made: dict[str, tuple[str, tuple[int, ...], Block]] = {
        "features": ("<f4", (FEATURES,), lambda n: rng.standard_normal((n, FEATURES), dtype=np.float32)),
        "labels": ("<i8", (), lambda n: rng.integers(0, CLASSES, n)),
        "train": ("|b1", (), lambda n: rng.random(n) < TRAINED_ON),
    }
    for name, (dtype, shape, block) in made.items():
        write_rows(folder / f"{name}.npy", dtype, (count, *shape), block)
    return {name: folder / f"{name}.npy" for name in made}


def write_rows(path: Path, dtype: str, shape: tuple[int, ...], block: Block) -> None:
    """Writes a .npy file block by block, without leaving it in the page cache."""
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
        for begin in range(0, shape[0], BLOCK):
            file.write(np.ascontiguousarray(block(min(BLOCK, shape[0] - begin)), dtype).data)
            file.flush()
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def trained(store: Path, folder: Path, limit: str, options: argparse.Namespace) -> JobResult:
    """A training with this limit, in a group with the same hard limit."""
    drop_pages(store)
    order = {
        "what": "train", "store": str(store), "model": "gcn", "options": {"hidden": HIDDEN, "dropout": 0.0},
        "settings": {"memory": limit, "scratch_dir": str(folder)}, "threads": options.threads,
        "epochs": options.epochs,
    }  # fmt: skip
    with Group("big", parse_bytes(limit)) as group:
        return group.run(order).checked()


def lines(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The text of the table."""
    first = next(row for row in rows if row["run"] == "train")
    return [_trained_line(row, first) if row["run"] == "train" else _ingested_line(row) for row in rows]


def _ingested_line(row: dict[str, Any]) -> tuple[str, ...]:
    what = f"ingest: {row['num_vertices']:,} vertices, {row['num_edges']:,} edges"
    return (what, row["limit"], f"{row['seconds']:.1f}", "-", "-", format_bytes(row["peak"]), "-", "-", "-", "-")


def _trained_line(row: dict[str, Any], first: dict[str, Any]) -> tuple[str, ...]:
    plan = row["plan"]
    after_set_up = row["moved"][1:] or row["moved"]
    moved = [
        format_bytes(round(statistics.median(each[direction] for each in after_set_up)))
        for direction in ("read", "written")
    ]
    return (
        f"GCN {FEATURES}-{HIDDEN}-{CLASSES}", row["limit"], f"{row['set_up_s']:.1f}", f"{seconds(row):.2f}",
        f"{seconds(row) / seconds(first):.2f}x", format_bytes(row["peak"]), format_bytes(plan["peak"]), *moved,
        ", ".join(f"{kind} {format_bytes(size)}" for kind, size in plan["resident"].items() if size),
    )  # fmt: skip


def seconds(row: dict[str, Any]) -> float:
    """Of an epoch."""
    return statistics.median(row["seconds"])


def failures(rows: list[dict[str, Any]]) -> list[str]:
    """The failures: a run that exceeded its limit did not come this far."""
    return [f"{row['run']}: went past {row['limit']}" for row in rows if row["peak"] > parse_bytes(row["limit"])]
