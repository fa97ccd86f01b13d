"""Which server owns each vertex: the methods by name, and the quality of the result.

The methods ``range`` and ``hash`` are here; ``stream`` and ``metis`` have modules of their own. Quality is the share of
edges between servers, the number of ghosts, and the balance of vertices and edges.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import native
from dorylus.errors import ConfigError, given, unknown_name
from dorylus.graph import Address, AnyArray, Graph, IdArray, OffsetArray
from dorylus.partition.edge_reader import PARTS_PER_PASS, CutEdges, EdgeReader, read_edges, scratch_beside
from dorylus.partition.layout import VERTEX_WORK
from dorylus.partition.limit import check_space, need_of, scratch_space, shares_of
from dorylus.partition.metis import metis_parts
from dorylus.partition.streaming import stream_parts
from dorylus.progress import ReportStage, silent


@dataclass(frozen=True, kw_only=True)
class Quality:
    """The quality of a partitioning.

    - ``edge_cut``: share of the directed edges whose ends lie in different parts.
    - ``ghosts_per_vertex``: distinct in-neighbours in other parts, summed over parts, a vertex: the rows that one
      Scatter of the whole graph sends, over the number of vertices.
    - ``vertex_balance``, ``edge_balance``: vertices and in-edges of the largest part over the mean; 1 is even.
    """

    edge_cut: float
    ghosts_per_vertex: float
    vertex_balance: float
    edge_balance: float

    @classmethod
    def of(cls, reader: EdgeReader, parts: IdArray, num_parts: int, tell: ReportStage = silent) -> Self:
        """The quality of these parts; needs a pass over the edges for every 32 of them and O(vertices) memory."""
        graph, num_cut, ghosts = reader.graph, 0, 0
        for first in range(0, num_parts, PARTS_PER_PASS):
            crossing = CutEdges.of(reader, parts, first, tell)
            num_cut, ghosts = crossing.num_cut, ghosts + crossing.num_in_ghosts()
        held = native.partition_held(graph.indptr, parts, num_parts)
        return cls(
            edge_cut=num_cut / max(graph.num_edges, 1),
            ghosts_per_vertex=ghosts / max(graph.num_vertices, 1),
            vertex_balance=_balance(held[:, 0]),
            edge_balance=_balance(held[:, 1]),
        )

    def __str__(self) -> str:
        return (
            f"{self.edge_cut:.1%} of the edges cut, {self.ghosts_per_vertex:.2f} ghosts a vertex, "
            f"vertex balance {self.vertex_balance:.2f}, edge balance {self.edge_balance:.2f}"
        )


def _balance(loads: AnyArray) -> float:
    mean = float(loads.mean())
    return float(loads.max()) / mean if mean else 1.0


def range_parts(reader: EdgeReader, servers: int, seed: int, tell: ReportStage) -> IdArray:
    """range: contiguous vertex numbers of even edge work. int32 [N], never falling; every part has a vertex.

    The work of a vertex is its in-edges plus a constant.
    """
    graph = reader.graph
    work = graph.in_degrees() + VERTEX_WORK
    middle = np.cumsum(work) - work / 2
    number = np.arange(servers)
    starts = np.searchsorted(middle, work.sum() * number / servers)
    starts = (
        np.maximum.accumulate(starts - number) + number
    )  # a vertex with more work than a share must not skip a part
    starts = np.minimum(starts, graph.num_vertices - servers + number)
    return np.repeat(number.astype(np.int32), np.diff(starts, append=graph.num_vertices))


STEP = 1 << 20  # vertices hashed together


def hash_parts(reader: EdgeReader, servers: int, seed: int, tell: ReportStage) -> IdArray:
    """hash: the part given by a fixed hash of the vertex's number. int32 [N]; the same for every graph and seed.

    So a vertex's server can be computed from its number alone.
    """
    parts = np.empty(reader.graph.num_vertices, np.int32)
    for begin in range(0, parts.size, STEP):
        end = min(begin + STEP, parts.size)
        parts[begin:end] = _split_mix(np.arange(begin, end, dtype=np.uint64)) % np.uint64(servers)
    return parts


def _split_mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


_MAKERS: dict[str, Callable[[EdgeReader, int, int, ReportStage], IdArray]] = {
    "hash": hash_parts,
    "metis": metis_parts,
    "range": range_parts,
    "stream": stream_parts,
}
METHODS = tuple(sorted(_MAKERS))


@dataclass(frozen=True, eq=False)
class Partitioning:
    """The part of each vertex, int32 [N], and the method that chose it; none of the ``num_parts`` is empty."""

    parts: IdArray
    num_parts: int
    method: str

    def __post_init__(self) -> None:
        low, high = self.parts.min(initial=0), self.parts.max(initial=0)
        sizes = np.bincount(self.parts - low, minlength=self.num_parts)
        if low < 0 or high >= self.num_parts or not sizes.all():
            found = f"its numbers go from {low} to {high}" if low < 0 or high >= self.num_parts else "one is empty"
            raise ConfigError(
                f"a partitioning into {self.num_parts} parts, but {found}. Every vertex has a part from 0 to "
                f"{self.num_parts - 1}, and every part a vertex."
            )

    def quality(self, graph: Graph, *, memory: int | str | None = None, tell: ReportStage = silent) -> Quality:
        """The quality on the graph that it was made for, measured within a memory limit if one is given."""
        shares = shares_of(graph, need_of(graph, "look", self.num_parts, self.method), memory)
        with read_edges(graph, shares, scratch_beside(graph)) as reader:
            return Quality.of(reader, self.parts, self.num_parts, tell)


def make_partitioning(
    graph: Graph,
    servers: int,
    method: str,
    seed: int = 0,
    *,
    passes: int | None = None,
    memory: int | str | None = None,
    scratch_dir: Address | None = None,
    tell: ReportStage = silent,
) -> Partitioning:
    """The vertices of the graph assigned to this many servers; the same for the same seed.

    - hash: by a fixed hash of the vertex's number; even, and ignores edges.
    - range: contiguous numbers of equal edge work; good where neighbours have close numbers.
    - metis: METIS (extra ``metis``); few cut edges and balanced edges, in many times the graph's memory.
    - stream: passes over the edges in O(vertices) memory, few cut edges, vertices and edges both balanced within
      5 %; ``passes`` (default 4) is the number of passes on each level, 1 being the plain one-pass stream.

    ``memory`` is a limit for the process, page cache included ("4GiB"): edges are then read from the graph's store in
    blocks, and the result is the same. What stream sorts goes to ``scratch_dir``, by default the folder that holds the
    store. ``tell`` is called with the progress.
    """
    if method not in _MAKERS:
        raise ConfigError(unknown_name("partitioning method", method, METHODS))
    _check(graph, servers, seed)
    if servers == 1:
        return Partitioning(np.zeros(graph.num_vertices, np.int32), 1, method)
    make = _MAKERS[method]
    if passes is not None:
        if method != "stream":
            raise ConfigError(
                f"{given('passes', passes)} with {given('method', method)}: only 'stream' takes passes. Leave it out."
            )
        make = partial(stream_parts, passes=passes)
    shares = shares_of(graph, need_of(graph, "divide", servers, method), memory)
    scratch = scratch_beside(graph) if scratch_dir is None else Path(scratch_dir)
    if not shares.in_any_order:
        check_space(scratch, scratch_space(graph, weighted=False), "sorting the edges")
    with read_edges(graph, shares, scratch) as reader:
        parts = make(reader, servers, seed, tell)
    return Partitioning(without_empty_parts(parts, servers, graph.in_degrees()), servers, method)


def without_empty_parts(parts: IdArray, num_parts: int, degrees: OffsetArray) -> IdArray:
    """The same parts, but each empty one gets a vertex of the largest part: the one with the fewest in-edges.

    There must be at least as many vertices as parts.
    """
    sizes = np.bincount(parts, minlength=num_parts)
    for empty in np.flatnonzero(sizes == 0):
        largest = sizes.argmax()
        members = np.flatnonzero(parts == largest)
        parts[members[degrees[members].argmin()]] = empty
        sizes[largest] -= 1
        sizes[empty] = 1
    return parts


def _check(graph: Graph, servers: int, seed: int) -> None:
    if graph.num_vertices == 0:
        raise ConfigError(f"{graph.name} has no vertices: there is nothing for a server to own.")
    if not 1 <= servers <= graph.num_vertices:
        raise ConfigError(
            f"{given('servers', servers)}, but {graph.name} has {graph.num_vertices:,} vertices. A server owns at "
            f"least one vertex: use from 1 to {graph.num_vertices:,}."
        )
    if not 0 <= seed < 2**63:
        raise ConfigError(f"{given('seed', seed)}: use a whole number from 0 to 2^63 - 1.")
