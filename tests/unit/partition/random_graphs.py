"""Random small graphs, whole and partitioned: empty rows, self loops, hubs, isolated vertices, any parts."""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

import dorylus
from dorylus.partition import LocalShard, PartitionPlan, make_partition_plan, make_shard, needed_levels, settle_levels


@st.composite
def graphs(draw: st.DrawFn, max_vertices: int = 24, *, weighted: bool = False) -> dorylus.Graph:
    """A graph of a few vertices, directed or not."""
    num_vertices = draw(st.integers(1, max_vertices))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_edges = draw(st.integers(0, 3 * num_vertices))
    source, destination = (num_vertices * rng.random((2, num_edges)) ** 2).astype(np.int64)
    if draw(st.booleans()):
        return _graph(rng, source, destination, num_vertices, undirected=False, weighted=weighted)
    ends = np.unique(np.sort(np.stack([source, destination]), axis=0), axis=1)
    return _graph(rng, ends[0], ends[1], num_vertices, undirected=True, weighted=weighted)


def _graph(
    rng: np.random.Generator, source: Any, destination: Any, num_vertices: int, *, undirected: bool, weighted: bool
) -> dorylus.Graph:
    once = np.unique(np.stack([source, destination]), axis=1)
    return dorylus.Graph.from_edges(
        once[0],
        once[1],
        num_vertices,
        undirected=undirected,
        edge_weight=rng.uniform(0.5, 2.0, once.shape[1]).astype(np.float32) if weighted else None,
        features=rng.standard_normal((num_vertices, 3), dtype=np.float32),
    )


def dense_matrix(graph: dorylus.Graph) -> NDArray[np.float64]:
    """Entry (v, u) is the weight of the edge u -> v."""
    out = np.zeros((graph.num_vertices, graph.num_vertices))
    source, destination = graph.edge_list()
    out[destination, source] = 1.0 if graph.edge_weight is None else graph.edge_weight
    return out


def random_parts(rng: np.random.Generator, num_vertices: int, servers: int) -> NDArray[np.int32]:
    """Parts that look at no edge, large and small ones, none empty."""
    shares = rng.dirichlet(np.full(servers, 0.7))
    parts = rng.choice(servers, num_vertices, p=shares).astype(np.int32)
    parts[rng.permutation(num_vertices)[:servers]] = np.arange(servers)
    return parts


@dataclass(frozen=True)
class Cluster:
    """A partitioned graph, and the local shard of each server."""

    graph: dorylus.Graph
    plan: PartitionPlan
    servers: list[LocalShard]
    rng: np.random.Generator

    def pairs(self) -> Iterator[tuple[LocalShard, LocalShard]]:
        """Every server with every other."""
        return ((a, b) for a in self.servers for b in self.servers if a is not b)


@st.composite
def clusters(
    draw: st.DrawFn, *, weighted: bool = False, directed: bool | None = None, needed: float | None = None
) -> Cluster:
    """Up to seven servers, whose shards hold their edges or leave them in the graph.

    ``needed`` is the share of vertices the loss reads.
    """
    graph = draw(graphs(weighted=weighted).filter(lambda graph: directed in (None, graph.directed)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    servers, layers = draw(st.integers(1, min(7, graph.num_vertices))), draw(st.integers(1, 3))
    loss_mask = rng.random(graph.num_vertices) < (rng.choice([0.1, 0.5, 1.0]) if needed is None else needed)
    return partitioned(graph, servers, layers, loss_mask, rng, edges=draw(st.booleans()))


def partitioned(
    graph: dorylus.Graph,
    servers: int,
    layers: int,
    loss_mask: NDArray[np.bool_],
    rng: np.random.Generator,
    *,
    edges: bool = False,
) -> Cluster:
    """A graph partitioned at random, for a model of this many layers whose loss reads the masked vertices."""
    size, degrees = graph.num_vertices, graph.in_degrees()
    parts = random_parts(rng, size, servers)
    deepest = settle_levels(needed_levels(graph.indptr, graph.indices, loss_mask, layers), degrees, layers)
    intervals = [int(rng.integers(1, count + 1)) for count in np.bincount(parts, minlength=servers)]
    order = rng.permutation(size).astype(np.int32)
    plan = make_partition_plan(degrees, order, parts, servers, deepest, layers, intervals)
    shards = [make_shard(graph, parts, server, edges=edges) for server in range(servers)]
    return Cluster(graph, plan, [LocalShard(shard, plan, graph) for shard in shards], rng)


def large_graph(num_vertices: int, degree: int, *, directed: bool) -> dorylus.Graph:
    """A graph made without large temporaries: vertices that leave the same remainder are linked, each to itself too."""
    step = num_vertices // degree
    indices = np.empty((num_vertices, degree), np.int32)
    np.add(np.arange(num_vertices)[:, None] % step, np.arange(degree) * step, out=indices, casting="unsafe")
    indptr = np.arange(num_vertices + 1, dtype=np.int64) * degree
    return dorylus.Graph(indptr, indices.ravel(), directed=directed, trust="everything")


Returned = TypeVar("Returned")


def in_a_new_process(work: Callable[..., Returned], *given: Any) -> Returned:
    """The result of a function in a process of its own, without memory that other tests have left free."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(work, *given).result(timeout=100)


class Peak:
    """By how many bytes the resident memory grew at most during a block."""

    grown = 0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Measures a block of code of a process of its own."""
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from what is resident now
    before, peak = _resident("VmRSS"), Peak()
    yield peak
    peak.grown = _resident("VmHWM") - before


def _resident(what: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) * 1024
