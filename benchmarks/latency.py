"""Is the latency of functions hidden? Epochs with functions behind a slow network against epochs with local ones.

    python -m benchmarks.latency [--functions 8] [--intervals 48] [--mbit 200] [--delay-ms 5]

Shaped: every function is a process in a network namespace of its own, with its own address and 200 Mbit/s each way, and
every byte waits 5 ms in each direction, invocations too. Unshaped: as many processes on loopback. The rest is the same
for both: handler, data path, encryption, graph, schedule, number of functions. Half of the machine's cores are the
graph server's, the other half the functions' (and the relay's, which delays bytes), for both alike: what functions
compute is not taken from the graph server. "same wires" has relay and namespaces, but neither bandwidth nor delay.

The graph has many edges for its vertices, and the first gather is done anew in every epoch: the graph server's cores
are the bottleneck in every phase. (With `--cache-first-gather` the first phase leaves them nothing to do but wait.)

All contenders take turns in one run; an epoch's time is the median over turns. Needs root, for the namespaces.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import dorylus
from benchmarks.shaped import options as common
from benchmarks.shaped.contender import Contender, take_turns
from benchmarks.shaped.network import move_out
from benchmarks.shaped.place import Place
from benchmarks.shaped.report import USED_HEADINGS, Report, busy_cores, used
from benchmarks.shaped.watch import split_cores

BOUND = 1.15
REFERENCE, SHAPED = "unshaped, pipe", "shaped, pipe"
CONTENDERS = (
    "threads, pipe", REFERENCE, "unshaped, no_pipe", "same wires, pipe",
    SHAPED, "shaped, no_pipe", "shaped, S=0", "shaped, S=1",
)  # fmt: skip
SCHEDULES: Mapping[str, Mapping[str, Any]] = {
    "pipe": {"mode": "pipe"},
    "no_pipe": {"mode": "no_pipe"},
    "S=0": {"mode": "async", "staleness": 0},
    "S=1": {"mode": "async", "staleness": 1},
}
HEADINGS = ("pool and schedule", "s/epoch", "/ unshaped", "cores: server, functions", *USED_HEADINGS, "note")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    move_out()
    cores = split_cores()
    places = {
        "unshaped": Place("near", cores, options.functions),
        "same wires": Place("wired", cores, options.functions, delay_ms=0.0),
        "shaped": Place("far", cores, options.functions, options.mbit, options.delay_ms),
    }
    contenders = make(options, places)
    try:
        take_turns(contenders, options.rounds, options.turn_s, options.patience)
        return report(options, contenders, places)
    finally:
        for contender in contenders:
            contender.trainer.close()
        for place in places.values():
            place.close()


def make(options: argparse.Namespace, places: Mapping[str, Place]) -> list[Contender]:
    """Every requested pool and schedule, on one graph."""
    print("making the graph ...", file=sys.stderr)
    graph = dorylus.communities(
        options.vertices, options.classes, options.features, average_degree=options.degree, homophily=0.1, seed=0
    )
    functions = {name: place.functions() for name, place in places.items()}
    model = dorylus.gcn(hidden=options.hidden, num_layers=options.layers, dropout=0.0)
    cut = {"servers": options.servers, "intervals": options.intervals}
    cut["cache_first_gather"] = options.cache_first_gather
    contenders = []
    for name in options.contenders:
        where, schedule = name.split(", ")
        settings = {**cut, **SCHEDULES[schedule]}
        contenders.append(Contender(name, graph, model, settings, functions.get(where), options.functions))
    return contenders


def report(options: argparse.Namespace, contenders: Sequence[Contender], places: Mapping[str, Place]) -> int:
    """Show and write the table; 0 if the latency is hidden."""
    by_name = {contender.name: contender for contender in contenders}
    reference_s = by_name[REFERENCE].epoch_s
    rows = [
        (
            each.name, f"{each.epoch_s:.3f}", f"{each.epoch_s / reference_s:.2f}x", busy_cores(each),
            *used(each), each.remark,
        )
        for each in contenders
    ]  # fmt: skip
    widths = "-".join(map(str, (options.features, *[options.hidden] * (options.layers - 1), options.classes)))
    title = (
        f"{options.vertices:,} vertices, {options.vertices * options.degree:,.0f} edges, GCN {widths}; "
        f"{options.servers} server(s), {options.intervals} intervals each, {options.functions} functions"
    )
    ratio = by_name[SHAPED].epoch_s / reference_s
    holds = "holds" if ratio <= BOUND else "DOES NOT HOLD"
    sentences = [
        f"Shaped: {places['shaped'].link}.",
        f"The pipelined epoch takes {ratio:.3f}x the unshaped one; at most {BOUND} is required: {holds}.",
    ]
    links = {name: vars(place.link) for name, place in places.items() if place.link is not None}
    made = Report("latency", options.results)
    made.add(title, HEADINGS, rows, sentences, contenders, links=links, ratio=ratio)
    made.write()
    return int(ratio > BOUND)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common.parser("latency", __doc__, rounds=7, turn_s=6.0)
    parser.add_argument("--vertices", type=int, default=50_000)
    parser.add_argument("--degree", type=float, default=1600)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--classes", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--intervals", type=int, default=48, help="of each server")
    parser.add_argument("--cache-first-gather", action="store_true")
    parser.add_argument("--functions", type=int, default=8, help="at work at once")
    parser.add_argument(
        "--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS, metavar="NAME",
        help=f"some of {', '.join(map(repr, CONTENDERS))}; {REFERENCE!r} and {SHAPED!r} must be among them",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    if not {REFERENCE, SHAPED} <= set(options.contenders):
        parser.error(f"--contenders: {REFERENCE!r} and {SHAPED!r} are what is compared, so name both.")
    return options


if __name__ == "__main__":
    sys.exit(main())
