"""Which server owns each vertex: the methods that decide it, by name, and how good the outcome is."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from dorylus.errors import ConfigError, unknown_name
from dorylus.graph import Graph
from dorylus.graph.arrays import IdArray, OffsetArray
from dorylus.graph.ingest.progress import Tell, silent
from dorylus.graph.places import Address
from dorylus.partition.hashing import hash_parts
from dorylus.partition.limit import need_of, shares_of
from dorylus.partition.metis import metis_parts
from dorylus.partition.quality import Quality
from dorylus.partition.ranges import range_parts
from dorylus.partition.reading import Reading, reading, scratch_beside
from dorylus.partition.space import check_space, scratch_space
from dorylus.partition.streaming import stream_parts

_MAKERS: dict[str, Callable[[Reading, int, int, Tell], IdArray]] = {
    "hash": hash_parts,
    "metis": metis_parts,
    "range": range_parts,
    "stream": stream_parts,
}
METHODS = tuple(sorted(_MAKERS))


@dataclass(frozen=True, eq=False)
class Partitioning:
    """The part of each vertex, int32 [N], none of the ``num_parts`` empty, and the method that chose it."""

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

    def quality(self, graph: Graph, *, memory: int | str | None = None, tell: Tell = silent) -> Quality:
        """What this partitioning costs on the graph it was made for, found within a limit of memory if one is given."""
        shares = shares_of(graph, need_of(graph, "look", self.num_parts, self.method), memory)
        with reading(graph, shares, scratch_beside(graph)) as edges:
            return Quality.of(edges, self.parts, self.num_parts, tell)


def make_partitioning(
    graph: Graph,
    servers: int,
    method: str,
    seed: int = 0,
    *,
    passes: int | None = None,
    memory: int | str | None = None,
    scratch_dir: Address | None = None,
    tell: Tell = silent,
) -> Partitioning:
    """The vertices of the graph divided among so many servers, the same for the same seed.

    - hash: by a fixed hash of the vertex's number; even, and blind to edges.
    - range: contiguous numbers of equal edge work; good where neighbours have close numbers.
    - metis: METIS (extra ``metis``); few cut edges and even edges, in many times the graph's memory.
    - stream: passes over the edges in O(vertices) memory, few cut edges, vertices and edges both even within 5 %;
      ``passes`` (default 4) is how often it looks at every vertex on each level, 1 being the plain one-pass stream.

    ``memory`` is what the process may take, page cache and all ("4GiB"): edges are then read from the graph's store in
    blocks, and the outcome is the same. What stream sorts goes to ``scratch_dir``, left out the folder that the store
    is in. ``tell`` is called with what is being done, now and then.
    """
    if method not in _MAKERS:
        raise ConfigError(unknown_name("partitioning method", method, METHODS))
    _check(graph, servers, seed)
    if servers == 1:
        return Partitioning(np.zeros(graph.num_vertices, np.int32), 1, method)
    make = _MAKERS[method]
    if passes is not None:
        if method != "stream":
            raise ConfigError(f"passes={passes} with method={method!r}: only 'stream' takes passes. Leave it out.")
        make = partial(stream_parts, passes=passes)
    shares = shares_of(graph, need_of(graph, "divide", servers, method), memory)
    scratch = scratch_beside(graph) if scratch_dir is None else Path(scratch_dir)
    if not shares.in_any_order:
        check_space(scratch, scratch_space(graph, weighted=False), "sorting the edges")
    with reading(graph, shares, scratch) as edges:
        parts = make(edges, servers, seed, tell)
    return Partitioning(without_empty_parts(parts, servers, graph.in_degrees()), servers, method)


def without_empty_parts(parts: IdArray, num_parts: int, degrees: OffsetArray) -> IdArray:
    """The same parts, but each empty one gets the vertex with the fewest in-edges of the part with the most vertices.

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
            f"servers={servers}, but {graph.name} has {graph.num_vertices:,} vertices. A server owns at least one "
            f"vertex: use from 1 to {graph.num_vertices:,}."
        )
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed={seed}: use a whole number from 0 to 2^63 - 1.")
