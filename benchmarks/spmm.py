"""The sparse product against the limit of memory: GB/s at several widths, from one interleaved run.

The limit is a loop that reads the same rows in the same order, with the same prefetching, and does nothing but add them
up in registers (`kernels.gather_limit`). Bytes are those of the rows gathered and of the column numbers. Limit, product
and torch's CSR product (MKL) take turns; a turn counts only when no other process used the machine (see `quiet`).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from benchmarks.quiet import Watch
from benchmarks.shapes import SHAPES, power_law_edges
from dorylus.backends import native
from dorylus.graph.generators.random_graphs import rmat

WIDTHS = (16, 41, 64, 128, 256)
HEADINGS = ("shape", "width", "limit GB/s", "spmm GB/s", "of limit", "spmm ms", "torch ms", "torch / ours", "note")


@dataclass(frozen=True)
class Csr:
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    def cuts(self, parts: int) -> list[tuple[int, int]]:
        """Row ranges of equal numbers of edges."""
        bounds = np.searchsorted(self.indptr, np.linspace(0, self.indptr[-1], parts + 1))
        bounds[0], bounds[-1] = 0, self.num_rows
        return list(pairwise(bounds.tolist()))


@dataclass
class Timings:
    """Seconds of each contender's turns, those on a quiet machine apart."""

    quiet: dict[str, list[float]] = field(default_factory=dict)
    noisy: dict[str, list[float]] = field(default_factory=dict)

    def median_s(self, name: str) -> float:
        return statistics.median(self.quiet.get(name) or self.noisy[name])

    @property
    def busy(self) -> bool:
        return any(name not in self.quiet for name in self.noisy)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    makers = {"reddit": reddit, "rmat": recursive}
    lines = []
    for shape in options.shapes:
        print(f"preparing {shape} ...", file=sys.stderr)
        csr = makers[shape]()
        lines += [line(shape, csr, width, options) for width in options.widths]
    title = f"{options.threads} threads, {native.isa()}, median of {options.rounds}"
    table.show(HEADINGS, lines, title)
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "spmm.md").write_text(
        f"`python -m benchmarks.spmm`, {title}\n\n" + table.markdown(HEADINGS, lines)
    )
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spmm", description=__doc__)
    parser.add_argument("--shapes", nargs="+", choices=("reddit", "rmat"), default=["reddit", "rmat"])
    parser.add_argument("--widths", nargs="+", type=int, default=list(WIDTHS))
    parser.add_argument("--rounds", type=int, default=7, help="turns that every contender takes")
    parser.add_argument("--patience", type=int, default=5, help="times a turn is tried until the machine is quiet")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--without-torch", action="store_true")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args(arguments)


def reddit() -> Csr:
    """46,000 vertices, 11.5M edges, power-law degrees."""
    shape, rng = SHAPES["reddit"], np.random.default_rng(0)
    labels = rng.integers(0, shape.num_classes, shape.num_vertices)
    source, destination = power_law_edges(rng, labels, shape.num_edges // 2)
    return Csr(*native.csr_build(destination, source, shape.num_vertices, shape.num_vertices)[:2])


def recursive() -> Csr:
    """1M vertices, 20M edges, far beyond any cache."""
    graph = rmat(num_vertices=1_000_000, num_edges=20_000_000, num_features=1)
    return Csr(graph.indptr, graph.indices)


def line(shape: str, csr: Csr, width: int, options: argparse.Namespace) -> tuple[str, ...]:
    """One row of the table."""
    timings = measure(contenders(csr, width, options), options)
    gigabytes = len(csr.indices) * 4 * (width + 1) / 1e9
    limit, ours = timings.median_s("limit"), timings.median_s("spmm")
    torch_s = None if options.without_torch else timings.median_s("torch")
    figures = (
        f"{gigabytes / limit:.1f}",
        f"{gigabytes / ours:.1f}",
        f"{100 * limit / ours:.0f} %",
        f"{1e3 * ours:.1f}",
    )
    peer = ("-", "-") if torch_s is None else (f"{1e3 * torch_s:.1f}", f"{torch_s / ours:.2f}x")
    return (shape, str(width), *figures, *peer, "BUSY MACHINE" if timings.busy else "")


def contenders(csr: Csr, width: int, options: argparse.Namespace) -> dict[str, Callable[[], object]]:
    """The functions to time, each a whole product (or the reading for one)."""
    x, out = rows_on_lines(csr.num_rows, width), rows_on_lines(csr.num_rows, width)
    x[:] = np.random.default_rng(0).standard_normal(x.shape, dtype=np.float32)
    out[:] = 0
    pool, cuts = ThreadPoolExecutor(options.threads), csr.cuts(options.threads)

    def limit() -> object:
        return list(pool.map(lambda cut: native.gather_limit(csr.indptr, csr.indices, x, *cut), cuts))

    def spmm() -> object:
        return list(pool.map(lambda cut: native.spmm(csr.indptr, csr.indices, x, out, *cut), cuts))

    found = {"limit": limit, "spmm": spmm}
    return found if options.without_torch else found | {"torch": torch_product(csr, x, options.threads)}


def rows_on_lines(rows: int, width: int) -> NDArray[np.float32]:
    """A matrix with rows that start on cache lines, as in the engine."""
    stride = -(-width // 16) * 16
    block = np.empty(rows * stride + 16, np.float32)
    start = -block.ctypes.data // 4 % 16
    return block[start : start + rows * stride].reshape(rows, stride)[:, :width]


def torch_product(csr: Csr, x: NDArray[np.float32], threads: int) -> Callable[[], object]:
    """torch's CSR product with int32 offsets, its fastest."""
    import warnings

    import torch

    torch.set_num_threads(threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "sparse CSR is in beta"
        matrix = torch.sparse_csr_tensor(
            torch.from_numpy(csr.indptr.astype(np.int32)),
            torch.from_numpy(csr.indices),
            torch.ones(len(csr.indices)),
            (csr.num_rows, csr.num_rows),
        )
    dense = torch.from_numpy(np.ascontiguousarray(x))
    return lambda: matrix @ dense


def measure(functions: dict[str, Callable[[], object]], options: argparse.Namespace) -> Timings:
    """Times every function in turn, `rounds` times; a turn on a busy machine is taken again."""
    timings = Timings()
    for function in functions.values():
        function()  # pages, threads and caches
    for _ in range(options.rounds):
        for name, function in functions.items():
            turn(name, function, timings, options.patience)
    return timings


def turn(name: str, function: Callable[[], object], timings: Timings, patience: int) -> None:
    """One turn: repeated until it has taken a fifth of a second, for the watch counts in hundredths."""
    for _ in range(patience):
        laps = []
        with Watch(os.getpid()) as watch:
            while sum(laps) < 0.2:
                start = time.perf_counter()
                function()
                laps.append(time.perf_counter() - start)
        kept = timings.quiet if watch.quiet else timings.noisy
        kept.setdefault(name, []).append(statistics.median(laps))
        if watch.quiet:
            return


if __name__ == "__main__":
    sys.exit(main())
