"""The partitioners side by side: what they cut, how even their parts are, what time and memory they take.

    python -m benchmarks.partitioners [--data FOLDER] [--quick]

Every graph is written as a store, its vertices numbered at random so that no method is helped by the order they were
made in, and every method runs in a process of its own that opens it: peak memory is that process's high-water mark,
with the interpreter, the graph (mapped from the store) and everything else in it. The run fails when the stream breaks
a promise: a part past 1.05 of the mean, on the graphs with communities more than 1.5 times METIS's cut or half of
hash's, on the largest graph more than --limit-s seconds or --limit-gib of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks import table
from benchmarks.contender import GIB, high_water_mark
from benchmarks.quiet import Watch
from dorylus.graph.generators.random_graphs import communities, rmat
from dorylus.graph.graph import Graph
from dorylus.partition import make_partitioning

HEADINGS = (
    "graph", "method", "servers", "edge cut", "of METIS's", "ghosts/vertex", "vertex balance", "edge balance",
    "seconds", "peak GiB", "note",
)  # fmt: skip
WITH_COMMUNITIES = ("communities-8", "communities-50", "coauthor-cs")
ONE_PASS = "stream, one pass"
BIG = "rmat-100M"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method on one graph."""

    graph: str
    method: str
    servers: int
    num_vertices: int
    num_edges: int
    edge_cut: float
    ghosts_per_vertex: float
    vertex_balance: float
    edge_balance: float
    seconds: float
    peak_bytes: int
    foreign_cores: float  # used by other processes meanwhile: quote seconds only near 0


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.child:
        print(json.dumps(asdict(measure(*json.loads(options.child)))))
        return 0
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="dorylus-partitioners-") as folder:
        for name, make in graphs(options).items():
            store = Path(folder) / name
            print(f"making {name} ...", file=sys.stderr)
            in_another_process(make, store)
            for servers in options.servers if name != BIG else [8]:
                for method in methods(name):
                    print(f"{name}: {method}, {servers} servers ...", file=sys.stderr)
                    rows.append(child(name, store, method, servers))
    return report(rows, options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partitioners")
    parser.add_argument("--data", type=Path, help="folder with coauthor_cs.npz and npm_2016_edges.npz, where at hand")
    parser.add_argument("--servers", nargs="+", type=int, default=[4, 8])
    parser.add_argument("--quick", action="store_true", help="leave out the graph of 100M edges")
    parser.add_argument("--limit-s", type=float, default=300.0)
    parser.add_argument("--limit-gib", type=float, default=4.0)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def graphs(options: argparse.Namespace) -> dict[str, Callable[[], Graph]]:
    """What makes each graph."""
    found: dict[str, Callable[[], Graph]] = {
        "communities-8": lambda: communities(200_000, 8, num_features=1),
        "communities-50": lambda: communities(200_000, 50, num_features=1),
        "rmat-16M": lambda: rmat(1_000_000, 16_000_000, num_features=1),
    }
    for name, file in (("coauthor-cs", "coauthor_cs.npz"), ("npm-2016", "npm_2016_edges.npz")):
        path = None if options.data is None else options.data / file
        if path is not None and path.exists():
            found[name] = lambda path=path: plain(path)
    if not options.quick:
        found[BIG] = lambda: rmat(6_250_000, 100_000_000, num_features=1)
    return found


def plain(path: Path) -> Graph:
    """The edges of a real graph."""
    with np.load(path) as archive:
        return Graph.from_edges(*archive["edges"], int(archive["num_nodes"]))


def methods(graph: str) -> Sequence[str]:
    """METIS is left out where it would need more memory than the limit by far."""
    return ("hash", "range", "stream", ONE_PASS) if graph == BIG else ("hash", "range", "metis", "stream", ONE_PASS)


def in_another_process(make: Callable[[], Graph], store: Path) -> None:
    """Write the graph, numbered at random, in a forked process, so that none of its memory stays in this one."""
    pid = os.fork()
    if pid == 0:
        renumbered(make()).save(store)
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        raise SystemExit(f"could not make {store.name}")


def renumbered(graph: Graph) -> Graph:
    """The edges of the graph with its vertices numbered at random; an rmat is so already."""
    if graph.name == "rmat":
        return graph
    number = np.random.default_rng(1).permutation(graph.num_vertices).astype(np.int32)
    source, destination = graph.edge_list()
    return Graph.from_edges(number[source], number[destination], graph.num_vertices)


def child(name: str, store: Path, method: str, servers: int) -> Row:
    """A row, measured in another process."""
    request = json.dumps([name, str(store), method, servers])
    command = [sys.executable, "-m", "benchmarks.partitioners", "--child", request]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ).stdout
    return Row(**json.loads(answer.splitlines()[-1]))


def measure(name: str, store: str, method: str, servers: int) -> Row:
    """Open the graph, partition it, and measure. Peak memory is taken before quality is counted."""
    graph = Graph.open(store)
    passes = {"passes": 1} if method == ONE_PASS else {}
    with Watch(os.getpid()) as watch:
        start = time.perf_counter()
        made = make_partitioning(graph, servers, method.split(",")[0], **passes)
        seconds = time.perf_counter() - start
    return Row(
        graph=name,
        method=method,
        servers=servers,
        num_vertices=graph.num_vertices,
        num_edges=graph.num_edges,
        seconds=seconds,
        peak_bytes=high_water_mark(),
        foreign_cores=watch.foreign_cores,
        **asdict(made.quality(graph)),
    )


def report(rows: Sequence[Row], options: argparse.Namespace) -> int:
    """Show and save the rows; fail when a bound is exceeded."""
    lines = [cells(row, rows) for row in rows]
    title = "partitioners: " + ", ".join(
        f"{name} {vertices:,} vertices {edges:,} directed edges"
        for name, vertices, edges in dict.fromkeys((row.graph, row.num_vertices, row.num_edges) for row in rows)
    )
    table.show(HEADINGS, lines, "partitioners")
    options.results.mkdir(parents=True, exist_ok=True)
    content = {"machine": table.machine(), "rows": [asdict(row) for row in rows]}
    (options.results / "partitioners.json").write_text(json.dumps(content, indent=1) + "\n")
    (options.results / "partitioners.md").write_text(
        f"`python -m benchmarks.partitioners`, {title}\n\n" + table.markdown(HEADINGS, lines)
    )
    broken = [text for row in rows for text in broken_promises(row, rows, options)]
    print("\n".join(broken) if broken else "every promise holds")
    return 1 if broken else 0


def cells(row: Row, rows: Sequence[Row]) -> tuple[str, ...]:
    """The text of a row."""
    metis = peer(row, rows, "metis")
    return (
        row.graph,
        row.method,
        str(row.servers),
        f"{100 * row.edge_cut:.1f} %",
        "-" if metis is None else f"{row.edge_cut / metis.edge_cut:.2f}x",
        f"{row.ghosts_per_vertex:.3f}",
        f"{row.vertex_balance:.3f}",
        f"{row.edge_balance:.3f}",
        f"{row.seconds:.2f}",
        f"{row.peak_bytes / GIB:.2f}",
        f"others used {row.foreign_cores:.1f} cores" if row.foreign_cores > 0.1 else "",
    )


def peer(row: Row, rows: Sequence[Row], method: str) -> Row | None:
    """Another method's row on the same graph, where there is one."""
    return next((r for r in rows if (r.graph, r.servers, r.method) == (row.graph, row.servers, method)), None)


def broken_promises(row: Row, rows: Sequence[Row], options: argparse.Namespace) -> list[str]:
    """The bounds of the stream that this row exceeds, in words."""
    if not row.method.startswith("stream"):
        return []
    broken = []
    where = f"{row.graph}, {row.method}, {row.servers} servers: "
    if max(row.vertex_balance, row.edge_balance) > 1.05:
        broken.append(where + "a part holds more than 1.05 of the mean")
    metis, chance = peer(row, rows, "metis"), peer(row, rows, "hash")
    if row.graph in WITH_COMMUNITIES and row.method == "stream" and metis and chance:
        if row.edge_cut > 1.5 * metis.edge_cut:
            broken.append(where + "cuts more than 1.5 times what METIS cuts")
        if row.edge_cut > 0.5 * chance.edge_cut:
            broken.append(where + "cuts more than half of what hash cuts")
    if row.graph == BIG and (row.seconds > options.limit_s or row.peak_bytes > options.limit_gib * GIB):
        broken.append(where + f"took {row.seconds:.0f} s and {row.peak_bytes / GIB:.2f} GiB")
    return broken


if __name__ == "__main__":
    sys.exit(main())
