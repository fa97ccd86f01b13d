"""The cost of servers on a Ray cluster: epoch time against embedded servers, bytes on the wire, memory of each server.

    python -m benchmarks.ray_servers [--what time wire memory]

Ray's nodes are network namespaces of this machine, joined by a bridge. ``time``: two servers on two nodes, a thread
each, take turns with two embedded servers on two threads. ``wire``: the bytes that left a node's network device in an
epoch (rows, weights, Ray's own messages, headers), against the rows that the cut makes the servers send. ``memory``:
the peak of each of four servers against a quarter of what one process needs for the whole graph; on both sides without
what a process needs for a tiny graph. A server also holds rows of its ghosts: how many there are is up to the
graph and its partitioning. Needs root, for the namespaces.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dorylus
from benchmarks import shapes, table
from benchmarks.ours import program, write_store
from dorylus.partition import make_partitioning, make_shard

TESTS = Path(__file__).parents[1] / "tests"
MIB, GIB = 2**20, 2**30
BOUNDS = {"time": 1.25, "wire": 0.05, "memory": 1.3}
RUN = {"epochs": 10**9, "lr": 0.01, "weight_decay": 5e-4, "eval_every": 0, "trace_epochs": 0, "deadline_s": 120}
PARTITION = "stream"
TINY = "communities:num_vertices=64,average_degree=3"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.role:
        print("{" + f'"result": {json.dumps(ROLES[options.role](options))}' + "}", flush=True)
        return 0
    if "RAY_BENCH" not in os.environ:
        return moved_out(sys.argv[1:] if arguments is None else arguments)
    from ray_bench.isolated import settle_in

    settle_in()
    found = [MEASURES[what](options) for what in options.what]
    return 0 if all(found) else 1


def moved_out(arguments: Sequence[str]) -> int:
    """Run this program in isolated namespaces: no process of Ray's outlives it, and none reaches another host."""
    own = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    environment = {**os.environ, "PYTHONPATH": path, "RAY_BENCH": "1"}
    return subprocess.run(
        [*own, sys.executable, "-m", "benchmarks.ray_servers", *arguments], env=environment
    ).returncode


@contextmanager
def nodes(count: int, cpus: float, options: argparse.Namespace) -> Iterator[Any]:
    from ray_bench.nodes import RayNodes

    with RayNodes(count, cpus=cpus) as made:
        yield made


def drive(nodes: Any, role: str, *words: str) -> Any:
    """The result of a driver on the first node."""
    driver = nodes.drive("benchmarks.ray_servers", "--role", role, *words)
    output = nodes.output(driver, 1800)
    return json.loads(next(line for line in reversed(output.splitlines()) if line.startswith('{"result"')))["result"]


def time_and_wire(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    with tempfile.TemporaryDirectory(prefix="dorylus-ray-", dir="/var/tmp") as folder:
        shapes.prepare(shapes.SHAPES[options.shape], Path(folder) / "arrays", None)
        write_store(Path(folder) / "arrays", Path(folder) / "store")
        with nodes(2, 2, options) as made:
            words = [
                "--shape",
                options.shape,
                "--rounds",
                str(options.rounds),
                "--turn",
                str(options.turn),
                "--intervals",
                str(options.intervals),
            ]
            return drive(made, "epochs", folder, *words), folder


def measure_time(options: argparse.Namespace) -> bool:
    run, _ = time_and_wire(options)
    near, far = (statistics.median(run[name]) for name in ("embedded", "ray"))
    rows = [("2 embedded servers", f"{near:.4f}", "1.00"), ("2 servers on Ray", f"{far:.4f}", f"{far / near:.2f}")]
    headings = ("servers", "s/epoch", "ratio")
    table.show(
        headings,
        rows,
        f"{options.shape}, GCN, 2 threads, {options.intervals} intervals a server, median of {len(run['ray'])} epochs",
    )
    keep(options, "ray_time", headings, rows)
    counted = {
        "rows that the cut requires": run["ghost_bytes"],
        "over connections between servers": run["line_bytes"],
        "over the network in total": run["device_bytes"],
    }
    wire = [(name, f"{sent / 1e6:.2f}", f"{sent / run['ghost_bytes']:.3f}") for name, sent in counted.items()]
    headings = ("bytes", "MB an epoch", "ratio")
    table.show(headings, wire, f"{options.shape}, GCN, 2 servers on Ray")
    keep(options, "ray_wire", headings, wire)
    return far / near <= BOUNDS["time"] and abs(run["line_bytes"] / run["ghost_bytes"] - 1) <= BOUNDS["wire"]


def epochs(options: argparse.Namespace) -> dict[str, Any]:
    """On a node: both clusters take turns; bytes of the last turn."""
    shape, (folder,) = shapes.SHAPES[options.shape], options.words
    graph, model = dorylus.Graph.open(Path(folder) / "store"), program("gcn", shape, 0.0)
    cut = {"servers": 2, "intervals": options.intervals}
    near = dorylus.Trainer(graph, model, threads=2, **cut, **RUN)
    far = dorylus.Trainer(graph, model, threads=1, cluster="ray", **cut, **RUN)
    seconds: dict[str, list[float]] = {"embedded": [], "ray": []}
    with near, far:
        for trainer in (near, far):
            trainer.run(epochs=3)
        for _ in range(options.rounds):
            for name, trainer in (("embedded", near), ("ray", far)):
                seconds[name] += [clocked(trainer) for _ in range(options.turn)]
        before, log = device_bytes(), Records()
        far.log._sinks.append(log)
        for _ in range(options.turn):
            clocked(far)
        sent = (device_bytes() - before) / options.turn
        lines = statistics.mean(sum(each["sent_bytes"] for each in epoch["servers"]) for epoch in log.epochs)
        traffic = log.epochs[-1]["traffic"]
    ghosts = traffic.get("ghosts", 0) + traffic.get("ghost_gradients", 0)
    return {**seconds, "ghost_bytes": ghosts, "line_bytes": lines, "device_bytes": sent}


class Records:
    """Keeps the records of epochs."""

    def __init__(self) -> None:
        self.epochs: list[dict[str, Any]] = []

    def write(self, record: dict[str, Any]) -> None:
        if record["kind"] == "epoch":
            self.epochs.append(record)

    def close(self) -> None: ...


def clocked(trainer: dorylus.Trainer) -> float:
    start = time.perf_counter()
    trainer.run(epochs=1)
    return time.perf_counter() - start


def device_bytes() -> int:
    """The bytes that the device of this namespace has sent and received."""
    words = next(line for line in Path("/proc/net/dev").read_text().splitlines() if "eth0" in line).split()
    return int(words[1]) + int(words[9])


def measure_memory(options: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory(prefix="dorylus-ray-", dir="/var/tmp") as folder:
        graphs = {"tiny": TINY, "whole": options.graph}
        for name, spec in graphs.items():
            dorylus.load(spec).save(Path(folder) / name)
        ghosts = ghosts_of(dorylus.Graph.open(Path(folder) / "whole"))
        with nodes(4, 1, options) as made:
            peaks = {name: drive(made, "peaks", f"{folder}/{name}") for name in graphs}
        alone = {name: alone_on(f"{folder}/{name}") for name in graphs}
    share, constant = (alone["whole"] - alone["tiny"]) / 4, max(peaks["tiny"])
    rows = [("one process, the whole graph", f"{alone['whole'] / MIB:.0f}", f"{alone['tiny'] / MIB:.0f}", "", "", "")]
    for server, peak in enumerate(peaks["whole"]):
        sizes = (f"{size / MIB:.0f}" for size in (peak, constant, peak - constant))
        rows.append((f"server {server} of 4", *sizes, f"{(peak - constant) / share:.2f}", f"{ghosts[server]:.2f}"))
    headings = (
        "process",
        "peak MiB",
        "of that for nothing",
        "of that for its shard",
        "of a quarter",
        "ghosts a vertex",
    )
    table.show(headings, rows, f"{options.graph}, GCN, a quarter is {share / MIB:.0f} MiB")
    keep(options, "ray_memory", headings, rows)
    return (max(peaks["whole"]) - constant) / share <= BOUNDS["memory"]


def ghosts_of(graph: dorylus.Graph) -> list[float]:
    """Ghosts for each own vertex, of four servers."""
    parts = make_partitioning(graph, 4, PARTITION).parts
    shards = (make_shard(graph, parts, server, edges=False) for server in range(4))
    return [shard.in_ghosts.size / shard.ids.size for shard in shards]


def peaks(options: argparse.Namespace) -> list[int]:
    """On a node: the peak memory of four servers."""
    settings = {**RUN, "epochs": 3, "threads": 1, "servers": 4, "cluster": "ray", "partition": PARTITION}
    result = dorylus.train(dorylus.Graph.open(options.words[0]), dorylus.gcn(hidden=64), **settings)
    return result.server_peak_memory_bytes


def alone(options: argparse.Namespace) -> int:
    """In another process: its peak memory for the whole graph."""
    settings = {**RUN, "epochs": 3, "threads": 1}
    return dorylus.train(dorylus.Graph.open(options.words[0]), dorylus.gcn(hidden=64), **settings).peak_memory_bytes


def alone_on(store: str) -> int:
    words = [sys.executable, "-m", "benchmarks.ray_servers", "--role", "alone", store]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return int(json.loads(output.splitlines()[-1])["result"])


def keep(options: argparse.Namespace, name: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    command = "python -m benchmarks.ray_servers --what " + name.removeprefix("ray_").replace("wire", "time")
    (options.results / f"{name}.md").write_text(f"`{command}`\n\n" + table.markdown(headings, rows))


MEASURES = {"time": measure_time, "memory": measure_memory}
ROLES = {"epochs": epochs, "peaks": peaks, "alone": alone}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_servers", description=__doc__.splitlines()[0])
    parser.add_argument("--what", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--shape", default="reddit", choices=shapes.SHAPES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--intervals", type=int, default=2, help="of each server, near and far")
    parser.add_argument("--turn", type=int, default=10, help="epochs of a turn")
    parser.add_argument(
        "--graph", default="communities:num_vertices=400000,num_classes=40,num_features=256,homophily=0.99",
        help="the graph of the memory measurement",
    )  # fmt: skip
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
