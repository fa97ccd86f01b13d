"""The effect of each saving in functions: fusion, rematerialisation, streaming, autotuning, on and off.

    python -m benchmarks.ablation [--shapes pubmed wide] [--mbit 200] [--delay-ms 5]

Functions are shaped as in `benchmarks.latency`; they are the same ones for all contenders of a shape, which take turns
in one run. Figures are for one epoch. Dollars are Lambda's price for the milliseconds billed and the requests, then
those with the nearest instance type to this machine for the epoch's time.

- *fusion* off: the last ApplyVertex and the gradient of the loss are two invocations, with the loss computed between.
- *rematerialisation* off: activations travel back and are sent along again, instead of being computed again.
- *streaming* off: a function computes when all of its rows are there, and sends when all is computed.
- *autotune* off: as many functions as it begins with, one for each interval.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dorylus
from benchmarks import shapes
from benchmarks.__main__ import DATA
from benchmarks.shaped import options as common
from benchmarks.shaped.contender import Contender, take_turns
from benchmarks.shaped.network import move_out
from benchmarks.shaped.place import Functions, Place
from benchmarks.shaped.report import USED_HEADINGS, Report, used
from benchmarks.shaped.watch import split_cores

HEADINGS = (
    "", *USED_HEADINGS, "of it fetching", "computing", "pushing",
    "functions $/M epochs", "with server $/M epochs", "s/epoch", "/ all on", "note",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AblationShape:
    """A graph, a model's width, and the number of intervals it is cut into."""

    shape: shapes.Shape
    intervals: int


CUTS: Mapping[str, AblationShape] = {
    "pubmed": AblationShape(shape=shapes.SHAPES["pubmed"], intervals=16),
    "wide": AblationShape(
        shape=shapes.Shape(
            name="wide", num_vertices=40_000, num_edges=800_000, num_features=128, hidden=256, num_classes=32
        ),
        intervals=24,
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    move_out()
    cores = split_cores()
    report = Report("ablation", options.results)
    for name in options.shapes:
        one_shape(CUTS[name], cores, options, report)
    report.write()
    return 0


def one_shape(cut: AblationShape, cores: set[int], options: argparse.Namespace, report: Report) -> None:
    """Measure every switch on one shape, and show its table."""
    num_functions = options.servers * cut.intervals  # an interval has one task under way at a time
    place = Place(cut.shape.name, cores, num_functions, options.mbit, options.delay_ms)
    contenders = make(cut, options, place)
    try:
        take_turns(contenders, options.rounds, options.turn_s, options.patience, settle=options.settle)
        show(cut, contenders, place, report)
    finally:
        for contender in contenders:
            contender.trainer.close()
        place.close()


def make(cut: AblationShape, options: argparse.Namespace, place: Place) -> list[Contender]:
    graph = graph_of(cut.shape, options.data)
    model = dorylus.gcn(hidden=cut.shape.hidden, num_layers=options.layers, dropout=0.5)
    settings = {"servers": options.servers, "intervals": cut.intervals}
    start = options.servers * min(cut.intervals, 100)
    best, whole, kept, worst = (
        place.functions(stream=stream, rematerialize=rematerialize)
        for stream, rematerialize in ((True, True), (False, True), (True, False), (False, False))
    )

    def contender(name: str, functions: Functions, **switches: Any) -> Contender:
        return Contender(name, graph, model, settings, functions, start=start, **switches)

    return [
        contender("all on", best),
        contender("fusion off", best, fuse=False),
        contender("rematerialisation off", kept),
        contender("streaming off", whole),
        contender("autotune off", best, limit=start),
        contender("all off", worst, limit=start, fuse=False, keep=True),
    ]


def graph_of(shape: shapes.Shape, data: Path | None) -> dorylus.Graph:
    """The shape's real graph where it is at hand, else a generated one."""
    real = data / shape.file if data is not None and shape.file else None
    arrays = shapes.read_plain(real) if real is not None and real.exists() else shapes.generate(shape)
    sparse = shapes.is_sparse(arrays["x"])
    features = dorylus.SparseFeatures.from_dense(arrays["x"]) if sparse else arrays["x"]
    masks = {f"{name}_mask": arrays[name] for name in ("train", "val", "test")}
    source, destination = arrays["edge_index"].astype("int32")
    return dorylus.Graph.from_edges(
        source, destination, num_vertices=len(arrays["x"]), features=features, labels=arrays["y"], **masks
    )


def show(cut: AblationShape, contenders: Sequence[Contender], place: Place, report: Report) -> None:
    all_on = contenders[0]
    shape = cut.shape
    title = (
        f"{shape.name}: {shape.num_vertices:,} vertices, {shape.num_edges:,} edges, GCN {shape.num_features}-"
        f"{shape.hidden}-{shape.num_classes}, {cut.intervals} intervals; {place.link}"
    )
    report.add(title, HEADINGS, [_row(each, all_on) for each in contenders], _numbers(contenders), contenders)


def _row(contender: Contender, all_on: Contender) -> tuple[str, ...]:
    spent = (
        contender.each_epoch(lambda turn, of=of: getattr(turn.used, of)) for of in ("fetch_ms", "compute_ms", "push_ms")
    )
    return (
        contender.name,
        *used(contender),
        *(f"{ms:.0f}" for ms in spent),
        f"{1e6 * contender.each_epoch(lambda turn: turn.functions_usd):.2f}",
        f"{1e6 * contender.each_epoch(lambda turn: turn.usd):.2f}",
        f"{contender.epoch_s:.3f}",
        f"{contender.epoch_s / all_on.epoch_s:.2f}x",
        contender.remark,
    )


def _numbers(contenders: Sequence[Contender]) -> list[str]:
    found = ", ".join(f"{each.name}: {each.pool.limit}" for each in contenders)
    return [f"Functions at once, at the end: {found}."]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common.parser("ablation", __doc__, rounds=7, turn_s=4.0)
    parser.add_argument("--shapes", nargs="+", choices=CUTS, default=list(CUTS))
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--settle", type=int, default=24, help="epochs in which the number of functions is found")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of pubmed.npz")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
