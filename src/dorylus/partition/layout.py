"""The layout of a shard's vertices in memory: intervals of equal edge work, needed rows first in each.

Vertices are renumbered so that an interval is a contiguous range of rows and, inside it, the rows of a deeper level
(see :mod:`dorylus.saga.stages`) come before those of a shallower one. The rows an interval needs at any level are
then one range: kernels and pools use plain slices, and rows that are not needed are never touched, so never resident.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import native
from dorylus.errors import ConfigError, given

ROWS_PER_INTERVAL = 8192
EDGES_PER_INTERVAL = 1_000_000
ALMOST_ALL = 0.95
VERTEX_WORK = 8  # the dense work of a row, counted in edges
FEWEST_ROWS_PER_UNIT = 64  # rows of 16 four-byte numbers, which fill a page
MOST_ROWS_PER_UNIT = 1024  # rows of four-byte numbers, which fill whole pages for every width


@dataclass(frozen=True, eq=False)
class Layout:
    """The order of the rows (new -> old), where intervals begin, and where each level's rows end in each interval."""

    order: NDArray[np.int32]
    bounds: NDArray[np.int64]
    level_ends: NDArray[np.int64]  # [levels, intervals]

    @property
    def num_intervals(self) -> int:
        """How many intervals there are."""
        return len(self.bounds) - 1

    def rows(self, level: int, interval: int) -> tuple[int, int]:
        """The range of rows an interval needs at a level."""
        return int(self.bounds[interval]), int(self.level_ends[level, interval])

    def num_rows(self, level: int) -> int:
        """How many rows are needed at a level, over all intervals."""
        return int((self.level_ends[level] - self.bounds[:-1]).sum())

    def everything(self) -> "Layout":
        """The same order and intervals, all rows needed at every level, for evaluation and prediction."""
        return Layout(self.order, self.bounds, np.broadcast_to(self.bounds[1:], self.level_ends.shape))


def choose_intervals(num_rows: int, num_edges: int, threads: int) -> int:
    """The number of intervals for work of this many rows and edges.

    Enough to keep the threads busy and their tasks in cache, few enough that a task takes longer than its overhead.
    """
    by_work = max(num_rows / ROWS_PER_INTERVAL, num_edges / EDGES_PER_INTERVAL)
    return 1 if by_work <= 2 else min(256, max(2 * threads, round(by_work)))


def check_intervals(intervals: int, num_vertices: int, server: int | None = None) -> None:
    """Refuse more intervals than vertices, in the graph or in the shard of one of several servers."""
    if intervals <= num_vertices:
        return
    where, cure = ("the graph", "") if server is None else (f"shard {server}", f", or fewer {given('servers')}")
    raise ConfigError(
        f"{given('intervals', intervals)}, but {where} has {num_vertices} vertices. "
        f"An interval holds at least one vertex: use at most {num_vertices}{cure}."
    )


def needed_levels(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], loss_mask: NDArray[np.bool_], num_layers: int
) -> NDArray[np.int8]:
    """The deepest level each vertex is needed at (-1: none), when the loss reads only the masked vertices.

    Level num_layers are the masked vertices; level l adds the in-neighbours of level l+1.
    """
    deepest = np.where(loss_mask, num_layers, -1).astype(np.int8)
    for level in range(num_layers - 1, -1, -1):
        readers = np.where(deepest == level + 1, level, -1).astype(np.int8)  # deeper rows have a level
        native.csr_reach(indptr, indices, readers, deepest)
    return deepest


def settle_levels(deepest: NDArray[np.int8], degrees: NDArray[np.int64], num_layers: int) -> NDArray[np.int8]:
    """The same levels, except that levels that need almost all vertices need all of them.

    A level that needs all rows shares one adjacency with its gradient where the graph is symmetric. One that leaves out
    a few vertices would need its own copy of nearly all edges.
    """
    for level in range(num_layers, -1, -1):
        if degrees[deepest >= level].sum() >= ALMOST_ALL * degrees.sum():
            return np.maximum(deepest, np.int8(level))
    return deepest


def plain_layout(indptr: NDArray[np.int64], num_layers: int, intervals: int) -> Layout:
    """The vertices in their own order, every row needed at every level, in intervals of about equal edge work.

    Needs no memory beyond the order itself.
    """
    size = indptr.size - 1
    total, unit = _work_before(indptr, size), rows_per_unit(size, intervals)
    firsts = [_bound_near(indptr, total * k // intervals, unit, total // intervals // 6) for k in range(intervals)]
    number, bounds = np.arange(intervals + 1), np.array([*firsts, size], np.int64)
    bounds = np.minimum(np.maximum.accumulate(bounds - number) + number, size - intervals + number)  # none is empty
    ends = np.broadcast_to(bounds[1:], (num_layers + 1, intervals))
    return Layout(np.arange(size, dtype=np.int32), bounds, ends)


def rows_per_unit(num_vertices: int, intervals: int) -> int:
    """The number of rows at whose multiples most intervals of a plain layout end: at most a quarter of an interval.

    A power of two, so that matrices of most widths have a page boundary there and two intervals share no page; or 1.
    """
    rows = 1 << (num_vertices // (4 * intervals)).bit_length() >> 1
    return min(rows, MOST_ROWS_PER_UNIT) if rows >= FEWEST_ROWS_PER_UNIT else 1


def _bound_near(indptr: NDArray[np.int64], work: int, unit: int, tolerance: int) -> int:
    """A vertex before which about this much work lies, rounded to the largest power of two that the tolerance allows.

    Near hubs that power is less than ``unit``.
    """
    vertex = _first_after(indptr, work)
    while unit > 1:
        near = (vertex + unit // 2) // unit * unit
        if near < indptr.size and abs(_work_before(indptr, near) - work) <= tolerance:
            return near
        unit //= 2
    return vertex


def _work_before(indptr: NDArray[np.int64], vertex: int) -> int:
    return int(indptr[vertex]) + VERTEX_WORK * vertex


def _first_after(indptr: NDArray[np.int64], work: int) -> int:
    """The first vertex before which at least this much work lies."""
    low, high = 0, indptr.size - 1
    while low < high:
        middle = (low + high) // 2
        if _work_before(indptr, middle) < work:
            low = middle + 1
        else:
            high = middle
    return low


def make_layout(
    degrees: NDArray[np.int64], order: NDArray[np.int32], deepest: NDArray[np.int8], num_layers: int, intervals: int
) -> Layout:
    """The vertices of every level, taken in the given order, split into intervals of equal edge work."""
    work = degrees[order] + VERTEX_WORK
    level = deepest[order]
    interval = np.empty(len(order), np.int64)
    for value in np.unique(level):
        members = np.flatnonzero(level == value)
        before = np.cumsum(work[members]) - work[members] / 2
        interval[members] = np.minimum(before * intervals // work[members].sum(), intervals - 1)
    by_place = np.argsort(interval * (num_layers + 2) + (num_layers - level), kind="stable")
    bounds = np.zeros(intervals + 1, np.int64)
    np.cumsum(np.bincount(interval, minlength=intervals), out=bounds[1:])
    ends = np.empty((num_layers + 1, intervals), np.int64)
    for depth in range(num_layers + 1):
        ends[depth] = bounds[:-1] + np.bincount(interval[level >= depth], minlength=intervals)
    return Layout(np.ascontiguousarray(order[by_place]), bounds, ends)
