"""The cost of many servers in one process: epoch time and peak memory of 1, 2 and 4 embedded servers on the same cores.

    python -m benchmarks.servers [--shape reddit] [--models gcn gat] [--partition stream]

Contenders are processes of their own that take turns, as in `make bench`; a turn counts only when no other process
used the machine. All the ghosts of four servers live in one memory here: more than on four machines, and the table has
that sum.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import __main__ as epochs_benchmark
from benchmarks import shapes, table
from benchmarks.contender import GIB, Entry

HEADINGS = ("shape", "model", "servers", "s/epoch", "ratio", "peak GiB", "ratio", "note")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    recipe = {"lr": 0.01, "weight_decay": 5e-4, "threads": options.threads, "seed": 0}
    rows, figures = [], []
    with tempfile.TemporaryDirectory(prefix="dorylus-servers-") as temporary:
        epochs_benchmark.write_graph(shapes.SHAPES[options.shape], Path(temporary), options)
        for model in options.models:
            entries = [entry(options, model, servers) for servers in options.servers]
            measured = epochs_benchmark.compete(entries, Path(temporary), recipe, options, "generated")
            first = measured[0]
            for servers, row in zip(options.servers, measured, strict=True):
                if row.median_s is None or first.median_s is None:
                    print(f"{row.contender}: {row.note}", file=sys.stderr)
                    return 1
                time_ratio, memory_ratio = row.median_s / first.median_s, row.peak_bytes / first.peak_bytes
                quiet = "" if row.seconds else "BUSY MACHINE"
                rows.append(
                    (
                        options.shape, model, str(servers), f"{row.median_s:.3f}", f"{time_ratio:.2f}",
                        f"{row.peak_bytes / GIB:.2f}", f"{memory_ratio:.2f}", quiet,
                    )
                )  # fmt: skip
                figures.append({"model": model, "servers": servers, "time": time_ratio, "memory": memory_ratio})
    table.show(
        HEADINGS, rows, f"{options.threads} threads, {options.partition}, dropout {options.dropout}, median epoch"
    )
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "servers.json").write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if all(each["time"] <= 1.15 and each["memory"] <= 1.3 for each in figures) else 1


def entry(options: argparse.Namespace, model: str, servers: int) -> Entry:
    settings = {"servers": servers, "partition": options.partition}
    return Entry(
        label=f"{servers} servers", builder="ours", shape=options.shape, model=model, savings=settings,
        dropout=options.dropout,
    )  # fmt: skip


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.servers", description=__doc__)
    parser.add_argument("--shape", choices=shapes.SHAPES, default="reddit")
    parser.add_argument("--models", nargs="+", choices=("gcn", "gat"), default=["gcn"])
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--partition", default="stream")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--patience", type=int, default=10)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", type=Path, default=epochs_benchmark.DATA)
    parser.add_argument("--results", type=Path, default=epochs_benchmark.RESULTS)
    parser.set_defaults(peers=False)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
