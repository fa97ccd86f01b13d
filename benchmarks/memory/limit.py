"""A problem whose tensors take about three times the hard limit of its group: ours, and PyG's best path."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.memory.group import Group, JobResult, drop_pages, run_outside
from dorylus.units import format_bytes, parse_bytes

HEADINGS = ("contender", "group's limit", "exit status", "s/epoch", "peak", "predicted", "limit met", "killed", "note")
LIMIT = "1GiB"
SIZES = {"num_vertices": 1_500_000, "num_edges": 20_000_000, "num_features": 64, "num_classes": 40}
OPTIONS = {"hidden": 96, "dropout": 0.0}
TOLERANCE = 1e-6
EXACT = {"optimizer": "sgd"}  # Adam divides by its own estimates, and makes roundings of small gradients large


def measure(folder: Path, threads: int, epochs: int) -> list[dict[str, Any]]:
    """Ours in memory and under the limit, PyG in memory and under the limit."""
    store, arrays = folder / "store", folder / "arrays"
    made = {"what": "generate", "generator": "rmat", "arguments": SIZES, "store": str(store), "arrays": str(arrays)}
    run_outside(made).checked()
    common = {"threads": threads, "epochs": epochs, "model": "gcn", "options": OPTIONS, "sizes": SIZES}
    theirs = {**common, "what": "pyg", "arrays": str(arrays)}
    return [
        *measure_ours(folder, {**common, "what": "train", "store": str(store)}),
        row_of("PyG, torch CSR", None, run_outside(theirs).checked()),
        row_of("PyG, torch CSR", LIMIT, in_group(folder, theirs)),
    ]


def measure_ours(folder: Path, order: dict[str, Any]) -> list[dict[str, Any]]:
    """In memory, in memory with the intervals of the third, and under the limit: the cut alone changes roundings."""
    files = [str(folder / f"{name}.pt") for name in ("limited", "free", "same-cut")]
    held = {**EXACT, "memory": LIMIT, "scratch_dir": str(folder)}
    limited = in_group(folder, {**order, "settings": held, "weights": files[0]}).checked()
    intervals = limited.report["plan"]["intervals"]
    free = run_outside({**order, "settings": EXACT, "weights": files[1]}).checked()
    same = run_outside({**order, "settings": {**EXACT, "intervals": intervals}, "weights": files[2]}).checked()
    return [
        row_of("dorylus", None, free),
        {**row_of(f"dorylus, {intervals} intervals", None, same), "apart": apart(free, same, files[1], files[2])},
        {**row_of("dorylus", LIMIT, limited), "apart": apart(same, limited, files[2], files[0])},
    ]


def in_group(folder: Path, order: dict[str, Any]) -> JobResult:
    """A run in a group with the limit, however it ends."""
    drop_pages(folder)
    with Group("limit", parse_bytes(LIMIT)) as group:
        return group.run(order)


def apart(one: JobResult, other: JobResult, *weights: str) -> dict[str, float]:
    """The largest difference between two runs' losses, and between their weights."""
    import torch

    first, second = (torch.load(path, weights_only=True) for path in weights)
    return {
        "losses": max(abs(a - b) for a, b in zip(one.report["losses"], other.report["losses"], strict=True)),
        "weights": max(float((first[name] - second[name]).abs().max()) for name in first),
    }


def row_of(contender: str, limit: str | None, ran: JobResult) -> dict[str, Any]:
    return {
        "who": contender,
        "limit": limit or "none",
        "status": ran.status,
        "peak": ran.peak,
        "refused": ran.refused,
        "oom_kills": ran.oom_kills,
        "errors": ran.errors if ran.status else "",
        **ran.report,
    }


def lines(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The text of the table."""
    return [
        (
            row["who"], row["limit"], str(row["status"]),
            f"{statistics.median(row['seconds']):.2f}" if "seconds" in row else "-", format_bytes(row["peak"]),
            format_bytes(row["plan"]["peak"]) if "plan" in row else "-", str(row["refused"]), str(row["oom_kills"]),
            note_of(row),
        )
        for row in rows
    ]  # fmt: skip


def note_of(row: dict[str, Any]) -> str:
    """How far a killed run came, or the difference from the row above."""
    if row["status"]:
        return f"ended while: {(row['errors'].splitlines() or ['starting'])[-1]}"
    if "apart" not in row:
        return ""
    return f"apart from the row above: losses {row['apart']['losses']:.1e}, weights {row['apart']['weights']:.1e}"


def failures(rows: list[dict[str, Any]]) -> list[str]:
    """The failures."""
    free, _, limited, _, theirs = rows
    found = []
    if max(limited["apart"].values()) > TOLERANCE:
        found.append(f"under {LIMIT}, our run is not the one in memory: apart by {limited['apart']}")
    if theirs["status"] != -9 or not theirs["oom_kills"]:
        found.append(f"under {LIMIT}, PyG ended with {theirs['status']}: the problem is too small to show anything")
    if free["peak"] < 2.5 * parse_bytes(LIMIT):
        found.append(f"in memory, our run took {format_bytes(free['peak'])}: less than two and a half times {LIMIT}")
    return found
