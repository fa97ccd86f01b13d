"""How many edges lead between intervals."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dorylus import kernels
from dorylus.partition.cut import Cut
from dorylus.partition.edges import Source, source_of
from dorylus.partition.shard import Shard

Between: TypeAlias = list[tuple[NDArray[np.int64], NDArray[np.int64]]]
"""For each own interval: the intervals at the other ends of its edges, and the number of edges to each."""


def in_edges_between(shard: Shard, graph: Source, cut: Cut, level: int) -> Between:
    """Where the in-edges of each own interval come from, of those that end in a row needed at a level (-1: all)."""
    place = np.where(cut.deepest >= level, _own_intervals(shard, cut), np.int32(-1))
    return _counted(shard, graph, cut, place, cut.interval)


def out_edges_between(shard: Shard, graph: Source, cut: Cut, level: int) -> Between:
    """Where the out-edges of each own interval go to, of those that end in a row needed at a level (-1: all)."""
    ends = np.where(cut.deepest >= level, cut.interval, np.int32(-1))
    place = _own_intervals(shard, cut)
    if not shard.directed:  # out-edges are in-edges turned round
        return _counted(shard, graph, cut, place, ends)
    sizes = len(cut.mine(shard.server)), cut.num_intervals
    if shard.out is None:
        (indptr, indices, _), _ = source_of(shard, graph)
        return _pairs(kernels.csr_count(indptr, indices, ends, place, *reversed(sizes)).T)
    names = np.concatenate([shard.ids, shard.out_ghosts])
    return _pairs(kernels.csr_count(*shard.out[:2], place[shard.ids], ends[names], *sizes))


def _counted(shard: Shard, graph: Source, cut: Cut, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> Between:
    """Count the in-edges of own vertices by groups, given for every vertex, of their ends."""
    (indptr, indices, _), names = source_of(shard, graph)
    if names is not None:
        rows, columns = rows[shard.ids], columns[names]
    return _pairs(kernels.csr_count(indptr, indices, rows, columns, len(cut.mine(shard.server)), cut.num_intervals))


def _own_intervals(shard: Shard, cut: Cut) -> NDArray[np.int32]:
    """For every vertex the number its interval has on this server, -1 for those of other servers."""
    place = np.full(shard.num_vertices, -1, np.int32)
    place[shard.ids] = cut.interval[shard.ids] - cut.mine(shard.server).start
    return place


def _pairs(counts: NDArray[np.int64]) -> Between:
    found = [np.flatnonzero(row) for row in counts]
    return [(others, row[others]) for row, others in zip(counts, found, strict=True)]
