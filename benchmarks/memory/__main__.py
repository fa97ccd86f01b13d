"""Training under a memory limit, in memory groups (control groups, version 1; root) that count the page cache too.

    python -m benchmarks.memory [--what limit predicted border big friendster] [--edges 1050000000]

- limit: a problem three times a group's hard limit: ours finishes with the weights of a run in memory, PyG is killed.
- predicted: the peak that `plan_memory` predicts against the group's high-water mark, for shapes it was not fitted to.
- border: runs in hard groups of the very limit they were given, from the least to just above what fits in memory.
- big: a recursive-matrix graph with a billion edges, ingested and trained under 16 GiB, then under 8 GiB.
- friendster: the same with the vertices and edges of Friendster, 3.6 billion in both directions, under 16 GiB.

Code of shared libraries is charged to the group that read it first: a warm-up outside any group reads it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.ingest import mount_groups
from benchmarks.memory import big, border, limit, predicted
from benchmarks.memory.group import run_outside
from benchmarks.table import machine, markdown, show

RESULTS = Path(__file__).parent.parent / "results"
PARTS: dict[str, tuple[ModuleType, str]] = {
    "limit": (limit, "A problem three times the hard limit of its group"),
    "predicted": (predicted, "Predicted and measured peaks, page cache included"),
    "big": (big, "A billion edges under two limits"),
    "friendster": (big, "Friendster's size"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parse(given)
    mount_groups(given, "benchmarks.memory")
    found: dict[str, list[dict[str, Any]]] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="dorylus-memory-", dir=options.folder) as folder:
        warm_up(Path(folder), options.threads)
        for what in options.what:
            if what == "border":
                failures += around_the_border(
                    options.folder / "dorylus-border" if options.keep else Path(folder), options
                )
                continue
            part, title = PARTS[what]
            place = Path(folder) / what
            place.mkdir()
            found[what] = measured(what, place, options)
            show(part.HEADINGS, part.lines(found[what]), title)
            failures += part.failures(found[what])
            write(options.results, found)
    for failure in failures:
        print(failure)
    return 1 if failures else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory")
    parser.add_argument("--what", nargs="+", choices=sorted([*PARTS, "border"]), default=["limit", "predicted"])
    parser.add_argument("--only", default="", help="predicted, border: cases whose model and name have this in them")
    parser.add_argument("--at", nargs="+", default=[], help="border: only these limits of each case")
    parser.add_argument("--reported", action="store_true", help="border: the six cases of 1.5 million vertices")
    parser.add_argument("--keep", action="store_true", help="border: keep the graphs in the folder for the next time")
    parser.add_argument("--vertices", type=int, help="big, friendster: of the graph")
    parser.add_argument("--edges", type=int, help="big, friendster: to be read")
    parser.add_argument("--memory", nargs="+", help="big, friendster: the limits, the widest first")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="a disk with room for graph and scratch")
    parser.add_argument("--store", type=Path, help="big, friendster: keep the graph here, or use the one that is there")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


def around_the_border(folder: Path, options: argparse.Namespace) -> list[str]:
    """Runs and shows the cases one after the other, and writes their table."""
    folder.mkdir(exist_ok=True)
    rows = []
    for row in border.measure(folder, options):
        rows.append(row)
        print(*border.lines([row])[0], sep=" | ", flush=True)
        border.write(options.results, rows, "reported" if options.reported else "grid")
    show(border.HEADINGS, border.lines(rows), "In hard groups of the very limit")
    return border.failures(rows)


def measured(what: str, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of a part."""
    if what == "limit":
        return limit.measure(folder, options.threads, options.epochs)
    if what == "predicted":
        return predicted.measure(folder, options.threads, options.only)
    return big.measure(folder, options, big.SIZES[what])


def warm_up(folder: Path, threads: int) -> None:
    """Reads the code of all libraries outside any group."""
    store = str(folder / "warm-up")
    order = {"what": "generate", "store": store, "generator": "rmat", "arguments": {"num_vertices": 2000}}
    run_outside(order).checked()
    train = {"what": "train", "store": store, "model": "gcn", "options": {}, "settings": {}}
    run_outside({**train, "threads": threads, "epochs": 1}).checked()


def write(folder: Path, found: dict[str, list[dict[str, Any]]]) -> None:
    """Write memory.json and memory.md to a folder; parts that were not measured stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "memory.json"
    kept = json.loads(path.read_text())["parts"] if path.exists() else {}
    parts = {what: found.get(what) or kept[what] for what in PARTS if what in found or what in kept}
    path.write_text(json.dumps({"machine": machine(), "parts": parts}, indent=1) + "\n")
    text = "".join(
        f"## {title}\n\n`python -m benchmarks.memory --what {what}`\n\n"
        + markdown(part.HEADINGS, part.lines(parts[what]))
        + "\n"
        for what, (part, title) in PARTS.items()
        if what in parts
    )
    (folder / "memory.md").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
