"""stream: passes over the in-edges that keep O(vertices) memory, whatever the number of edges.

A vertex goes where its in-neighbours are, for a price that rises with what a part holds already: Fennel (Tsourakakis
et al. 2014), with one price for vertices and one for in-edges, so that both come out even. In one pass a vertex sees
only those placed before it. With more, vertices are first merged into small clusters (label propagation with bounded
sizes, Meyerhenke et al. 2014), clusters into larger ones, the largest are placed first, and every level down to single
vertices is placed again: whole communities move before their members settle. No coarse graph is built: a cluster's
edges are those of its members.

No part holds more than 1.05 times the mean of vertices or of in-edges. Only where that is impossible, because a few
vertices have more in-edges than a part may hold, the limit on edges is what dealing vertices out by falling degree
reaches, and with fewer than twenty vertices a part the one on vertices is the mean rounded up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np

from dorylus import kernels
from dorylus.errors import ConfigError
from dorylus.graph import Graph
from dorylus.graph.arrays import IdArray, OffsetArray

PASSES = 4
SLACK = 0.05
CLUSTER_SHARES = (1 / 256, 1 / 128, 1 / 64, 1 / 32)  # of a mean part, what a cluster of each level may hold
SETTLED = 0.01  # a share of clusters that still moves too small for another pass
LINEAR, GENTLE, STEEPEST = 0, 1, 6  # prices rise with the 1st, 2nd ... 64th power of what a part holds


class Clusters(NamedTuple):
    """Vertices that move together: cluster c holds members[starts[c]:starts[c + 1]]; most in-edges first."""

    starts: OffsetArray
    members: IdArray

    @classmethod
    def of(cls, labels: IdArray, degrees: OffsetArray) -> "Clusters":
        """The clusters of vertices that carry the same label, a number below N."""
        edges = np.bincount(labels, weights=degrees, minlength=len(labels))
        used = np.flatnonzero(np.bincount(labels, minlength=len(labels)))
        number = np.empty(len(labels), np.int32)
        number[used[np.argsort(-edges[used], kind="stable")]] = np.arange(len(used), dtype=np.int32)
        vertices = np.arange(len(labels), dtype=np.int32)
        starts, members, _ = kernels.csr_build(number[labels], vertices, len(used), len(labels))
        return cls(starts, members)

    @property
    def num_clusters(self) -> int:
        """How many clusters there are."""
        return len(self.starts) - 1


def stream_parts(
    graph: Graph, servers: int, seed: int, tell: Callable[[str], None], *, passes: int = PASSES
) -> IdArray:
    """int32 [N]; ``passes`` is how often each level is looked at, 1 meaning single vertices once, without clusters.

    Vertices go by in the order of falling degree: those that decide most come first. Where the limits do not hold in
    the end, passes with ever steeper prices follow until they do.
    """
    if passes < 1:
        raise ConfigError(f"passes={passes}: the stream goes by at least once. Use 1 or more.")
    vertices = Clusters.of(np.arange(graph.num_vertices, dtype=np.int32), graph.in_degrees())
    placing = _Placing.start(graph, servers, vertices, tell)
    if passes == 1:
        placing.place(vertices, LINEAR, strict=True)
        placing.make_even(vertices)
        return placing.parts
    levels = [vertices, *_merged(graph, servers, vertices, passes, seed, tell)]
    for clusters in reversed(levels):
        placing.settle(clusters, passes, strict=False)
    placing.make_even(vertices)
    placing.settle(vertices, passes, strict=True)
    return placing.parts


def _merged(
    graph: Graph, servers: int, clusters: Clusters, passes: int, seed: int, tell: Callable[[str], None]
) -> list[Clusters]:
    """Ever larger clusters, one list a level; a level that merges nothing is left out."""
    labels = np.arange(graph.num_vertices, dtype=np.int32)
    levels = []
    draws = count(seed)
    for level, share in enumerate(CLUSTER_SHARES, start=1):
        for number in range(1, passes + 1):
            tell(f"merging vertices into clusters, level {level} of {len(CLUSTER_SHARES)}, pass {number}")
            moved = kernels.partition_merge(
                graph.indptr,
                graph.indices,
                *clusters,
                labels,
                vertex_room=int(share * graph.num_vertices / servers),
                edge_room=int(share * graph.num_edges / servers),
                seed=next(draws),
            )
            if moved <= SETTLED * clusters.num_clusters:
                break
        merged = Clusters.of(labels, graph.in_degrees())
        if merged.num_clusters < clusters.num_clusters:
            clusters = merged
            levels.append(clusters)
    return levels


@dataclass
class _Placing:
    """Parts that are being made, and what they may hold."""

    graph: Graph
    servers: int
    vertex_limit: int
    edge_limit: int
    dealt: IdArray  # within the limits, whatever the graph
    parts: IdArray
    tell: Callable[[str], None]

    @classmethod
    def start(cls, graph: Graph, servers: int, vertices: Clusters, tell: Callable[[str], None]) -> "_Placing":
        """No vertex placed yet."""
        vertex_limit = max(-(-graph.num_vertices // servers), int((1 + SLACK) * graph.num_vertices / servers))
        dealt = kernels.partition_deal(graph.indptr, vertices.members, servers, vertex_limit=vertex_limit)
        edge_limit = max(int((1 + SLACK) * graph.num_edges / servers), int(_edges(graph, dealt, servers).max()))
        parts = np.full(graph.num_vertices, -1, np.int32)
        return cls(graph, servers, vertex_limit, edge_limit, dealt, parts, tell)

    def place(self, clusters: Clusters, steepness: int, *, strict: bool) -> int:
        """One pass; how many clusters moved."""
        what = "vertices" if clusters.num_clusters == len(self.parts) else "clusters"
        self.tell(f"placing {clusters.num_clusters:,} {what}")
        return kernels.partition_place(
            self.graph.indptr,
            self.graph.indices,
            *clusters,
            self.parts,
            self.servers,
            vertex_limit=self.vertex_limit,
            edge_limit=self.edge_limit,
            steepness=steepness,
            strict=strict,
        )

    def settle(self, clusters: Clusters, passes: int, *, strict: bool) -> None:
        """Passes until hardly any cluster moves, or so many."""
        for _ in range(passes):
            if self.place(clusters, GENTLE, strict=strict) <= SETTLED * clusters.num_clusters:
                return

    def make_even(self, vertices: Clusters) -> None:
        """Brings every part within its limits: by steeper prices, and if those should fail, by dealing anew."""
        for steepness in range(GENTLE + 1, STEEPEST + 1):
            if self._is_even():
                return
            self.place(vertices, steepness, strict=False)
        if not self._is_even():
            self.parts = self.dealt

    def _is_even(self) -> bool:
        sizes = np.bincount(self.parts, minlength=self.servers)
        edges = _edges(self.graph, self.parts, self.servers)
        return bool(sizes.max() <= self.vertex_limit and edges.max() <= self.edge_limit)


def _edges(graph: Graph, parts: IdArray, servers: int) -> OffsetArray:
    return np.bincount(parts, weights=graph.in_degrees(), minlength=servers).astype(np.int64)
