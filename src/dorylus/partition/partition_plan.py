"""The partition plan of a graph: the server and interval of each vertex, and the deepest level that needs it.

Intervals are numbered over the whole cluster: server k owns ``bounds[k]:bounds[k + 1]``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dorylus.partition.layout import Layout, check_intervals, make_layout, plain_layout


@dataclass(frozen=True, eq=False)
class PartitionPlan:
    """The part, interval and level of every vertex of the graph, and the layout of every server.

    ``deepest`` is the deepest level that needs a vertex (-1: none), ``interval`` its interval. The order of a layout
    holds its vertices' numbers in the graph.
    """

    parts: NDArray[np.int32]
    deepest: NDArray[np.int8]
    interval: NDArray[np.int32]
    layouts: tuple[Layout, ...]
    bounds: tuple[int, ...]
    num_layers: int

    @property
    def num_servers(self) -> int:
        """How many servers there are."""
        return len(self.layouts)

    @property
    def num_intervals(self) -> int:
        """How many intervals there are, over all servers."""
        return self.bounds[-1]

    def mine(self, server: int) -> range:
        """The intervals of one server."""
        return range(self.bounds[server], self.bounds[server + 1])


def plain_partition_plan(indptr: NDArray[np.int64], num_layers: int, intervals: int) -> PartitionPlan:
    """One server, vertices in their own order, every row needed; stores no number per vertex but the order."""
    layout, size = plain_layout(indptr, num_layers, intervals), indptr.size - 1
    check_intervals(intervals, size)
    zeros = np.broadcast_to(np.int32(0), size)  # server 0, and the layout alone has the intervals
    deepest = np.broadcast_to(np.int8(num_layers), size)
    return PartitionPlan(zeros, deepest, zeros, (layout,), (0, intervals), num_layers)


def make_partition_plan(
    degrees: NDArray[np.int64],
    order: NDArray[np.int32],
    parts: NDArray[np.int32],
    num_servers: int,
    deepest: NDArray[np.int8],
    num_layers: int,
    intervals: Sequence[int],
) -> PartitionPlan:
    """The plan in which every server's vertices, taken in the given order, are split into its number of intervals."""
    by_server = order[np.argsort(parts[order], kind="stable")]
    ends = np.cumsum(np.bincount(parts, minlength=num_servers))
    layouts = []
    for server, own in enumerate(np.split(by_server, ends[:-1])):
        check_intervals(intervals[server], own.size, server if num_servers > 1 else None)
        layouts.append(make_layout(degrees, own, deepest, num_layers, intervals[server]))
    bounds = (0, *np.cumsum(intervals).tolist())
    interval = np.empty(parts.size, np.int32)
    for first, layout in zip(bounds, layouts, strict=False):
        interval[layout.order] = first + np.repeat(np.arange(layout.num_intervals), np.diff(layout.bounds))
    return PartitionPlan(parts, deepest, interval, tuple(layouts), bounds, num_layers)
