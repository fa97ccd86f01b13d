"""stream: passes over the in-edges in O(vertices) memory, for any number of edges.

A vertex goes where its in-neighbours are, less a price that rises with what the part already holds: Fennel (Tsourakakis
et al. 2014), with one price for vertices and one for in-edges, so that both come out even. In one pass a vertex sees
only those placed before it. With more, vertices are first merged into small clusters (label propagation with bounded
sizes, Meyerhenke et al. 2014), clusters into larger ones, the largest are placed first, and every level down to single
vertices is placed again: whole communities move before their members settle. No coarse graph is built: a cluster's
edges are those of its members.

No part holds more than 1.05 times the mean of vertices or of in-edges. Only where that is impossible, because a few
vertices have more in-edges than a part may hold, the limit on edges is what dealing vertices out by falling degree
reaches, and with fewer than twenty vertices a part the limit on vertices is the mean rounded up.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np

from dorylus.backends import native
from dorylus.errors import ConfigError
from dorylus.graph import Graph, IdArray, OffsetArray
from dorylus.partition.edge_reader import EdgeReader
from dorylus.partition.limit import LARGEST_CLUSTER
from dorylus.partition.paged_shard import PagedCsr
from dorylus.progress import ReportStage, StageProgress


class Clusters(NamedTuple):
    """Vertices that are placed together: cluster c holds members[starts[c]:starts[c + 1]]; most in-edges first."""

    starts: OffsetArray
    members: IdArray

    @classmethod
    def of(cls, labels: IdArray, degrees: OffsetArray) -> "Clusters":
        """The clusters of vertices that carry the same label, a number below N."""
        number, count = _numbers(labels, degrees)
        vertices = np.arange(len(labels), dtype=np.int32)
        starts, members, _ = native.csr_build(number[labels], vertices, count, len(labels))
        return cls(starts, members)

    @property
    def num_clusters(self) -> int:
        """How many clusters there are."""
        return len(self.starts) - 1


def _numbers(labels: IdArray, degrees: OffsetArray) -> tuple[IdArray, int]:
    """(the cluster of each label, by falling number of in-edges, how many there are)."""
    used = np.flatnonzero(np.bincount(labels, minlength=len(labels)))
    edges = np.bincount(labels, weights=degrees, minlength=len(labels))[used]
    number = np.empty(len(labels), np.int32)
    number[used[np.argsort(-edges, kind="stable")]] = np.arange(len(used), dtype=np.int32)
    return number, len(used)


class ClusterBlock(NamedTuple):
    """Consecutive clusters, from number ``first`` on, and the in-edges of their members.

    Row m of the edges is that of member m or, not ``in_order``, row v that of vertex v.
    """

    first: int
    clusters: Clusters
    indptr: OffsetArray
    indices: IdArray
    in_order: bool

    @property
    def num_edges(self) -> int:
        """How many edges the block has."""
        return self.indices.size


class ClusterScan:
    """Reads clusters, as often as needed: all at once, or as many at a time as fit into a block."""

    def __init__(self, clusters: Clusters, reader: EdgeReader, edges: PagedCsr | None) -> None:
        self.clusters, self._graph, self._edges = clusters, reader.graph, edges

    def blocks(self, *, backwards: bool = False) -> Iterator[ClusterBlock]:
        """Every cluster once; ``backwards``: the last block first."""
        if self._edges is None:
            yield ClusterBlock(0, self.clusters, self._graph.indptr, self._graph.indices, in_order=False)
            return
        starts, members = self.clusters
        for _, begin, (near, indices, _) in self._edges.blocks(backwards=backwards):
            first, last = np.searchsorted(starts, [begin, begin + near.size - 1]).tolist()
            some = Clusters(starts[first : last + 1] - begin, members[begin : begin + near.size - 1])
            yield ClusterBlock(first, some, near, indices, in_order=True)


@contextmanager
def scan_clusters(reader: EdgeReader, clusters: Clusters) -> Iterator[ClusterScan]:
    """A scan of the clusters; where rows cannot be read in any order, the edges are sorted first."""
    if reader.in_any_order:
        yield ClusterScan(clusters, reader, None)
        return
    with reader.in_order(clusters.members, clusters.starts) as edges:
        yield ClusterScan(clusters, reader, edges)


PASSES = 4
SLACK = 0.05
CLUSTER_SHARES = (1 / 256, 1 / 128, 1 / 64, LARGEST_CLUSTER)  # of a mean part, what a cluster of each level may hold
SETTLED = 0.01  # the share of clusters that move below which no further pass is made
LINEAR, GENTLE, STEEPEST = 0, 1, 6  # prices rise with the 1st, 2nd ... 64th power of what a part holds


def stream_parts(reader: EdgeReader, servers: int, seed: int, tell: ReportStage, *, passes: int = PASSES) -> IdArray:
    """int32 [N]; ``passes`` is the number of passes on each level, 1 meaning single vertices once, without clusters.

    Vertices are visited by falling degree: those with the most edges first. Where the limits do not hold in the end,
    passes with ever steeper prices follow until they do.
    """
    if passes < 1:
        raise ConfigError(f"passes={passes}: the stream makes at least one pass. Use 1 or more.")
    graph = reader.graph
    vertices = Clusters.of(np.arange(graph.num_vertices, dtype=np.int32), graph.in_degrees())
    levels = [] if passes == 1 else _merged(reader, servers, vertices, passes, seed, tell)
    bar = _PassProgress("placing vertices", graph.num_edges * ((len(levels) + 2) * passes if passes > 1 else 1), tell)
    placing = _Placement.start(graph, servers, vertices, bar)
    while levels:
        with scan_clusters(reader, levels.pop()) as clusters:
            placing.settle(clusters, passes, strict=False)
    with scan_clusters(reader, vertices) as single:
        if passes == 1:
            placing.place(single, LINEAR, strict=True)
            placing.make_even(single)
        else:
            placing.settle(single, passes, strict=False)
            placing.make_even(single)
            placing.settle(single, passes, strict=True)
    bar.to(bar.total)
    return placing.parts


def _merged(
    reader: EdgeReader, servers: int, clusters: Clusters, passes: int, seed: int, tell: ReportStage
) -> list[Clusters]:
    """Ever larger clusters, one list a level; a level that merges nothing is left out."""
    graph, levels, draws = reader.graph, [], count(seed)
    labels = np.arange(graph.num_vertices, dtype=np.int32)
    bar = _PassProgress("merging vertices into clusters", graph.num_edges * len(CLUSTER_SHARES) * passes, tell)
    for number, share in enumerate(CLUSTER_SHARES, start=1):
        rooms = int(share * graph.num_vertices / servers), int(share * graph.num_edges / servers)
        with scan_clusters(reader, clusters) as some:
            for _ in range(passes):
                if _merge(graph, some, labels, rooms, next(draws), bar) <= SETTLED * clusters.num_clusters:
                    break
        bar.to(graph.num_edges * number * passes)
        merged = Clusters.of(labels, graph.in_degrees())
        if merged.num_clusters < clusters.num_clusters:
            clusters = merged
            levels.append(clusters)
    return levels


def _merge(
    graph: Graph, clusters: ClusterScan, labels: IdArray, rooms: tuple[int, int], seed: int, bar: "_PassProgress"
) -> int:
    """One pass; returns how many clusters took another label."""
    held, moved = native.partition_held(graph.indptr, labels, graph.num_vertices), 0
    for block in clusters.blocks(backwards=True):
        moved += native.partition_merge(
            block.indptr,
            block.indices,
            *block.clusters,
            labels,
            held,
            vertex_room=rooms[0],
            edge_room=rooms[1],
            seed=seed,
            first_cluster=block.first,
            in_order=block.in_order,
        )
        bar.add(block.num_edges)
    return moved


@dataclass
class _PassProgress:
    """The number of edges read, of the largest possible number."""

    stage: str
    total: int
    tell: ReportStage
    done: int = 0

    def add(self, num_edges: int) -> None:
        """Report this many more edges."""
        self.to(self.done + num_edges)

    def to(self, done: int) -> None:
        """Report this many edges in total: passes may be skipped."""
        self.done = min(done, self.total)
        self.tell(StageProgress(self.stage, self.done, self.total, "edges"))


@dataclass
class _Placement:
    """The parts while they are made, and their limits."""

    graph: Graph
    servers: int
    vertex_limit: int
    edge_limit: int
    dealt: IdArray  # within the limits for any graph
    parts: IdArray
    bar: _PassProgress

    @classmethod
    def start(cls, graph: Graph, servers: int, vertices: Clusters, bar: _PassProgress) -> "_Placement":
        """No vertex placed yet."""
        vertex_limit = max(-(-graph.num_vertices // servers), int((1 + SLACK) * graph.num_vertices / servers))
        dealt = native.partition_deal(graph.indptr, vertices.members, servers, vertex_limit=vertex_limit)
        most = native.partition_held(graph.indptr, dealt, servers)[:, 1].max()
        edge_limit = max(int((1 + SLACK) * graph.num_edges / servers), int(most))
        parts = np.full(graph.num_vertices, -1, np.int32)
        return cls(graph, servers, vertex_limit, edge_limit, dealt, parts, bar)

    def place(self, clusters: ClusterScan, steepness: int, *, strict: bool) -> int:
        """One pass; returns how many clusters moved."""
        held, moved = native.partition_held(self.graph.indptr, self.parts, self.servers), 0
        for block in clusters.blocks():
            moved += native.partition_place(
                block.indptr,
                block.indices,
                *block.clusters,
                self.parts,
                held,
                num_edges=self.graph.num_edges,
                vertex_limit=self.vertex_limit,
                edge_limit=self.edge_limit,
                steepness=steepness,
                strict=strict,
                in_order=block.in_order,
            )
            self.bar.add(block.num_edges)
        return moved

    def settle(self, clusters: ClusterScan, passes: int, *, strict: bool) -> None:
        """At most ``passes`` passes, until hardly any cluster moves."""
        end = self.bar.done + passes * self.graph.num_edges
        for _ in range(passes):
            if self.place(clusters, GENTLE, strict=strict) <= SETTLED * clusters.clusters.num_clusters:
                break
        self.bar.to(end)

    def make_even(self, vertices: ClusterScan) -> None:
        """Bring every part within its limits: by steeper prices or, if those fail, by dealing the vertices out."""
        for steepness in range(GENTLE + 1, STEEPEST + 1):
            if self._is_even():
                return
            self.place(vertices, steepness, strict=False)
        if not self._is_even():
            self.parts = self.dealt

    def _is_even(self) -> bool:
        most = native.partition_held(self.graph.indptr, self.parts, self.servers).max(axis=0)
        return bool((most <= [self.vertex_limit, self.edge_limit]).all())
