"""Does the autotuner find the right number of functions? Fixed numbers against tuned ones from too few and too many.

    python -m benchmarks.autotune [--shapes narrow wide] [--fixed 1 2 4 8 16 32 64 100]

Functions are shaped as in `benchmarks.latency`; all contenders use the same hundred. First the tuned ones train for
some epochs on their own, to settle; then all take turns in one run, and the tuned ones go on tuning.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dorylus
from benchmarks.shaped import options as common
from benchmarks.shaped.contender import Contender, take_turns
from benchmarks.shaped.network import move_out
from benchmarks.shaped.place import Place
from benchmarks.shaped.report import USED_HEADINGS, Report, busy_cores, used
from benchmarks.shaped.watch import split_cores

BOUND = 1.15
HEADINGS = (
    "functions",
    "at the end",
    "s/epoch",
    "/ best fixed",
    "cores: server, functions",
    *USED_HEADINGS,
    "note",
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph and how it is cut."""

    what: str
    vertices: int
    degree: float
    features: int
    hidden: int
    classes: int
    intervals: int


CASES: Mapping[str, Case] = {
    "narrow": Case(
        what="many edges, narrow layers: small tasks",
        vertices=20_000, degree=1_000, features=32, hidden=32, classes=16, intervals=40,
    ),
    "wide": Case(
        what="few edges, wide layers: big tasks",
        vertices=12_000, degree=10, features=256, hidden=256, classes=32, intervals=100,
    ),
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    move_out()
    cores = split_cores()
    report = Report("autotune", options.results)
    place = Place("far", cores, max(options.fixed), options.mbit, options.delay_ms)
    try:
        held = [one_case(CASES[name], options, place, report) for name in options.shapes]
    finally:
        place.close()
    report.write()
    return 0 if all(held) else 1


def one_case(case: Case, options: argparse.Namespace, place: Place, report: Report) -> bool:
    """Measure fixed and tuned numbers on one shape; returns whether the tuned ones are close enough to the best."""
    print(f"{case.what}: making the graph ...", file=sys.stderr)
    graph = dorylus.communities(
        case.vertices, case.classes, case.features, average_degree=case.degree, homophily=0.5, seed=0
    )
    model = dorylus.gcn(hidden=case.hidden, num_layers=2, dropout=0.0)
    settings = {"servers": options.servers, "intervals": case.intervals}
    functions = place.functions()
    fixed = [Contender(f"{number}", graph, model, settings, functions, number) for number in options.fixed]
    tuned = [
        Contender(f"tuned from {start}", graph, model, settings, functions, start=start) for start in options.starts
    ]
    try:
        take_turns([*fixed, *tuned], options.rounds, options.turn_s, options.patience, settle=options.settle)
        return show(case, fixed, tuned, place, report)
    finally:
        for contender in (*fixed, *tuned):
            contender.trainer.close()


def show(case: Case, fixed: Sequence[Contender], tuned: Sequence[Contender], place: Place, report: Report) -> bool:
    best = min(fixed, key=lambda each: each.epoch_s)
    ratios = {each.name: each.epoch_s / best.epoch_s for each in (*fixed, *tuned)}
    rows = [
        (
            each.name, str(each.pool.limit), f"{each.epoch_s:.3f}", f"{ratios[each.name]:.2f}x",
            busy_cores(each), *used(each), each.remark,
        )
        for each in (*fixed, *tuned)
    ]  # fmt: skip
    title = (
        f"{case.what}: {case.vertices:,} vertices, {case.vertices * case.degree:,.0f} edges, "
        f"GCN {case.features}-{case.hidden}-{case.classes}, {case.intervals} intervals; {place.link}"
    )
    holds = all(ratios[each.name] <= BOUND for each in tuned)
    sentences = [_decisions(each) for each in tuned]
    close = ", ".join(f"{each.name} {ratios[each.name]:.2f}x" for each in tuned)
    bound = f"at most {BOUND} is required: {'holds' if holds else 'DOES NOT HOLD'}."
    sentences.append(f"The best fixed number is {best.name}; {close}; {bound}")
    report.add(title, HEADINGS, rows, sentences, [*fixed, *tuned])
    return holds


def _decisions(contender: Contender) -> str:
    path = " -> ".join([str(contender.start), *(f"{each.new} (epoch {epoch})" for epoch, each in contender.decisions)])
    return f"{contender.name}: {path}."


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common.parser("autotune", __doc__, rounds=5, turn_s=3.0)
    parser.add_argument("--shapes", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--fixed", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32, 64, 100])
    parser.add_argument("--starts", nargs="+", type=int, default=[1, 100])
    parser.add_argument("--settle", type=int, default=40, help="epochs before anything is measured")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
