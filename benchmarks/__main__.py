"""`make bench`: seconds per epoch and peak memory of GCN and GAT against PyG (and DGL), from one interleaved run.

Contenders of one shape and model take turns, a few epochs each, and a turn counts only
when no other process used the machine (see `quiet`).
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import shapes, table
from benchmarks.contender import GIB, Contender, ContenderError, Entry, available_bytes
from benchmarks.quiet import Watch
from benchmarks.table import Row

RESULTS = Path(__file__).parent / "results"
DATA = Path(__file__).parents[2] / "shared" / "data" / "plain"
SPARE_BYTES = 2 * GIB  # left to the rest of the machine when a big peer starts


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    recipe = {"lr": 0.01, "weight_decay": 5e-4, "threads": options.threads, "seed": 0}
    rows: list[Row] = []
    for name in options.shapes:
        with tempfile.TemporaryDirectory(prefix="dorylus-bench-") as temporary:
            origin = write_graph(shapes.SHAPES[name], Path(temporary), options)
            sparse = shapes.is_sparse(np.load(Path(temporary) / "arrays" / "x.npy", mmap_mode="r"))
            for model in options.models:
                competing = [each for p in options.dropout for each in entries(name, model, p, options, sparse=sparse)]
                rows += compete(competing, Path(temporary), recipe, options, origin)
    table.show(table.HEADINGS, table.cells(rows), f"{options.threads} threads, median epoch")
    table.write(options.results, options.name, rows, "python -m benchmarks " + " ".join(sys.argv[1:]))
    failed = any(row.note.startswith("failed") for row in rows)
    return 1 if failed or not (options.without_spmm or sparse_product(options.threads)) else 0


def sparse_product(threads: int) -> bool:
    """Print the sparse product's table as well, from another process; returns whether it succeeded."""
    command = [sys.executable, "-m", "benchmarks.spmm", "--threads", str(threads)]
    return subprocess.run(command).returncode == 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--shapes", nargs="+", choices=shapes.SHAPES, default=list(shapes.SHAPES))
    parser.add_argument("--models", nargs="+", choices=("gcn", "gat"), default=["gcn", "gat"])
    parser.add_argument("--rounds", type=int, default=5, help="turns that every contender takes")
    parser.add_argument("--patience", type=int, default=10, help="times a turn is tried until the machine is quiet")
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.0], help="all of them take turns")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="leave out the peers that need many GiB and half a minute")
    parser.add_argument("--peers", action="store_true", help="measure the peers only")
    parser.add_argument("--without-spmm", action="store_true", help="leave the sparse product's own table out")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of cora.npz and pubmed.npz")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--name", default="epochs", help="file name of the results")
    return parser.parse_args(arguments)


def write_graph(shape: shapes.Shape, folder: Path, options: argparse.Namespace) -> str:
    """Put the shape's arrays, and a store of them, into folder; returns whether they are real or generated."""
    print(f"preparing {shape.name} ...", file=sys.stderr)
    origin = shapes.prepare(shape, folder / "arrays", options.data)
    if not options.peers:
        from benchmarks.ours import write_store

        write_store(folder / "arrays", folder / "store")
    return origin


def entries(shape: str, model: str, dropout: float, options: argparse.Namespace, *, sparse: bool) -> Iterator[Entry]:
    """The contenders for this shape, model and dropout. PyG also reads x as a sparse matrix where it is one."""
    entry = partial(Entry, shape=shape, model=model, dropout=dropout)
    big = shapes.SHAPES[shape].num_edges > 1_000_000
    if not options.peers:
        yield from own_entries(entry, model)
    if model == "gcn":
        yield entry(label="PyG, CSR adjacency", builder="pyg-gcn-best")
        if sparse and not dropout:
            yield entry(label="PyG, CSR adjacency, sparse x", builder="pyg-gcn-best-sparse")
    if find_dgl():
        yield entry(label="DGL", builder=f"dgl-{model}")
    if not (big and options.quick):
        messages = 2.5 if model == "gcn" else 6  # arrays of edges x width alive at once, measured
        needs = int(messages * shapes.SHAPES[shape].message_bytes(model)) if big else 0
        yield entry(label="PyG, edge_index", builder=f"pyg-{model}-edge_index", once=big, needs_bytes=needs)
    if model == "gat" and sparse and not dropout:
        yield entry(label="PyG, edge_index, sparse x", builder="pyg-gat-edge_index-sparse")


def own_entries(entry: Callable[..., Entry], model: str) -> Iterator[Entry]:
    from benchmarks.ours import VARIANTS

    for variant, savings in VARIANTS.items():
        if model == "gcn" or variant in ("all savings", "no savings"):
            yield entry(label=f"dorylus, {variant}", builder="ours", savings=savings)


def find_dgl() -> bool:
    from importlib.util import find_spec

    return find_spec("dgl") is not None


def compete(
    competing: Sequence[Entry], folder: Path, recipe: dict[str, float], options: argparse.Namespace, origin: str
) -> list[Row]:
    """Measure the entries in turns; one row each, in their order."""
    notes = {"real": "", "generated": "generated graph"}
    rows = [Row(shape=e.shape, model=e.trained, contender=e.label, note=notes[origin]) for e in competing]
    with contextlib.ExitStack() as stack:
        turns = []
        for entry, row in zip(competing, rows, strict=True):
            if not entry.once and (ready := warm(stack, entry, folder, recipe, row)) is not None:
                turns.append((*ready, row))
        for turn in range(options.rounds):
            print(f"{rows[0].shape} {rows[0].model}: round {turn + 1} of {options.rounds}", file=sys.stderr)
            for contender, count, row in turns:
                take_turn(contender, count, row, options.patience)
        for contender, _, row in turns:
            row.peak_bytes = contender.peak_bytes()
    for entry, row in zip(competing, rows, strict=True):
        if entry.once:
            run_once(entry, folder, recipe, row)
    return rows


def take_turn(contender: Contender, count: int, row: Row, patience: int) -> None:
    """Measure some epochs; repeat a limited number of times while other processes use the machine."""
    for _ in range(patience):
        with Watch(contender.pid) as watch:
            seconds = contender.epochs(count)
        if watch.quiet:
            row.seconds += seconds
            return
        row.noisy_seconds += seconds
        time.sleep(1.0)


def warm(
    stack: contextlib.ExitStack, entry: Entry, folder: Path, recipe: dict[str, float], row: Row, turn_s: float = 1.0
) -> tuple[Contender, int] | None:
    """A warm contender that lives until the stack closes, and how many epochs fill its turn; None when it fails."""
    with failure_noted(row):
        contender = stack.enter_context(Contender(entry, folder, recipe))
        contender.epochs(2)
        return contender, max(2, min(100, round(turn_s / max(min(contender.epochs(3)), 1e-6))))
    return None


@contextlib.contextmanager
def failure_noted(row: Row) -> Iterator[None]:
    """Turn a contender's death into a note, so that the other rows are still measured."""
    try:
        yield
    except ContenderError as error:
        print(error, file=sys.stderr)
        row.note = f"failed: {str(error).strip().splitlines()[-1]}"


def run_once(entry: Entry, folder: Path, recipe: dict[str, float], row: Row) -> None:
    """Measure one epoch of a contender that needs the machine's memory for itself."""
    if entry.needs_bytes + SPARE_BYTES > available_bytes():
        row.note = f"not run: needs about {entry.needs_bytes / GIB:.0f} GiB"
        return
    print(f"{entry.shape} {entry.model}: one epoch of {entry.label}", file=sys.stderr)
    with failure_noted(row), Contender(entry, folder, recipe) as contender:
        take_turn(contender, 1, row, patience=1)
        row.peak_bytes = contender.peak_bytes()
        row.note = f"{row.note}, one epoch".lstrip(", ")


if __name__ == "__main__":
    sys.exit(main())
