"""How fast edges become a store, and in how much memory: a recursive-matrix graph, both directions.

    python -m benchmarks.ingest [--format raw|text|parquet|names] [--edges 1000000000] [--vertices 33554432]
                                [--memory 4GiB] [--minutes 25]

Raw pairs, lines of two numbers as SNAP has them, Parquet, or lines of two names. Figures are kept by format.

The ingest runs in a memory group of its own (control groups, version 1; root), whose high-water mark counts the page
cache too. The group sets no limit, which would only make the kernel hide what was too much. The run fails when time or
memory is exceeded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import table
from benchmarks.edge_files import SUFFIXES, write_edges
from dorylus.units import format_bytes, parse_bytes

RESULTS = Path(__file__).parent / "results"
GROUPS = Path("/sys/fs/cgroup/memory")
HEADINGS = ("format", "vertices", "edges read", "stored", "input", "limit", "peak", "s", "M edges/s")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.stage == "ingest":
        print(json.dumps(ingest(options)))
        return 0
    mount_groups(sys.argv[1:] if arguments is None else arguments)
    with tempfile.TemporaryDirectory(prefix="dorylus-ingest-", dir=options.folder) as folder:
        edges = options.input or Path(folder) / f"edges{SUFFIXES[options.format]}"
        if not edges.exists():
            write_edges(edges, options.vertices, options.edges, options.seed, options.format)
        figures = measured(edges, Path(folder) / "store", options)
    return report(figures, options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest")
    parser.add_argument("--format", choices=tuple(SUFFIXES), default="raw", help="what the edges are written in")
    parser.add_argument("--edges", type=int, default=1_000_000_000)
    parser.add_argument("--vertices", type=int, default=1 << 25)
    parser.add_argument("--memory", default="4GiB", help="what the ingest may take, page cache included")
    parser.add_argument("--minutes", type=float, default=25.0, help="time that must not be exceeded")
    parser.add_argument("--undirected", action="store_true", help="one direction, stored both ways, in place of two")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="a disk with room for input and store")
    parser.add_argument("--input", type=Path, help="keep the edges here, or use those that are there")
    parser.add_argument("--stage", choices=("ingest",), help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


def ingest(options: argparse.Namespace) -> dict[str, float]:
    """Ingest in this process, and print the figures."""
    from dorylus.ingest.entry_point import ingest_edges

    start = time.perf_counter()
    count = None if options.format == "names" else options.vertices
    made = ingest_edges(
        [options.input], options.store, memory=options.memory, undirected=options.undirected, num_vertices=count
    )
    return {
        "num_vertices": made.num_vertices,
        "num_edges_read": made.num_read,
        "num_edges_stored": made.num_edges,
        "seconds": time.perf_counter() - start,
    }


def measured(edges: Path, store: Path, options: argparse.Namespace) -> dict[str, float]:
    """The figures of an ingest in a memory group of its own, with the group's high-water mark."""
    limit = parse_bytes(options.memory)
    group = memory_group()
    command = [
        sys.executable, "-m", "benchmarks.ingest", "--stage", "ingest", "--input", str(edges), "--store", str(store),
        "--memory", options.memory, "--vertices", str(options.vertices), "--format", options.format,
        *(["--undirected"] * options.undirected),
    ]  # fmt: skip
    joined = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh", *command]
    try:
        done = subprocess.run(joined, stdout=subprocess.PIPE, text=True, check=False)
        peak = int((group / "memory.max_usage_in_bytes").read_text())
    finally:
        group.rmdir()
    if done.returncode:
        sys.exit(f"the ingest ended with {done.returncode} at a peak of {format_bytes(peak)}.")
    figures = json.loads(done.stdout.splitlines()[-1])
    return {**figures, "input_bytes": edges.stat().st_size, "memory_bytes": limit, "peak_bytes": peak}


def mount_groups(arguments: Sequence[str], module: str = "benchmarks.ingest") -> None:
    """Where the memory controller is not mounted, starts a program again in a mount namespace in which it is."""
    if (GROUPS / "memory.limit_in_bytes").exists():
        return
    mount = f'mkdir -p {GROUPS} && mount -t cgroup -o memory cgroup {GROUPS} && exec "$@"'
    again = [sys.executable, "-m", module, *arguments]
    os.execvp("unshare", ["unshare", "--mount", "sh", "-c", mount, "sh", *again])


def memory_group() -> Path:
    """A new memory group without a limit."""
    group = GROUPS / f"dorylus-ingest-{os.getpid()}"
    group.mkdir()
    return group


def report(figures: dict[str, float], options: argparse.Namespace) -> int:
    """Print the figures, keep them, and fail when time or memory went past the limit."""
    kept = keep(options.results, options.format, figures)
    table.show(HEADINGS, [line(options.format, figures)], "ingest, page cache included in the peak")
    command = "python -m benchmarks.ingest --format FORMAT --edges EDGES"
    lines = [line(name, kept[name]) for name in SUFFIXES if name in kept]
    (options.results / "ingest.md").write_text(f"`{command}`\n\n" + table.markdown(HEADINGS, lines))
    return 0 if figures["seconds"] <= 60 * options.minutes and figures["peak_bytes"] <= figures["memory_bytes"] else 1


def keep(folder: Path, name: str, figures: dict[str, float]) -> dict[str, dict[str, float]]:
    """Replaces the figures of a format; returns those of all formats."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ingest.json"
    kept: dict[str, dict[str, float]] = json.loads(path.read_text()) if path.exists() else {}
    kept[name] = figures
    path.write_text(json.dumps(kept, indent=1) + "\n")
    return kept


def line(name: str, figures: dict[str, float]) -> tuple[str, ...]:
    """A format's row of the table."""
    rate = figures["num_edges_read"] / figures["seconds"] / 1e6
    counts = (f"{int(figures[key]):,}" for key in ("num_vertices", "num_edges_read", "num_edges_stored"))
    sizes = (format_bytes(int(figures[key])) if key in figures else "-" for key in ("input_bytes", "memory_bytes"))
    peak = format_bytes(int(figures["peak_bytes"]))
    return (name, *counts, *sizes, peak, f"{figures['seconds']:.1f}", f"{rate:.2f}")


if __name__ == "__main__":
    sys.exit(main())
