"""Cutting a graph into parts by streaming over it, and counting what a cut costs.

Vertices move in clusters: cluster c holds ``members[starts[c]:starts[c + 1]]``, every vertex is in one, and those with
the most in-edges come first. A pass reads every in-edge once and keeps O(vertices) memory beside the graph.
"""

from dorylus.kernels import _native
from dorylus.kernels._arrays import Ints, Offsets


def partition_merge(
    indptr: Offsets,
    indices: Ints,
    starts: Offsets,
    members: Ints,
    labels: Ints,
    *,
    vertex_room: int,
    edge_room: int,
    seed: int,
) -> int:
    """One pass that merges clusters with their neighbours; how many took another label.

    From the last cluster to the first, each takes the label it sees on most of its in-neighbours outside it, of those
    that it would not lead past ``vertex_room`` vertices or ``edge_room`` in-edges; on equal terms it keeps its own, or
    takes the one the seed ranks first. ``labels`` is int32 [N] with numbers below N, one a cluster, and is written.
    """
    return _native.partition_merge(indptr, indices, starts, members, labels, vertex_room, edge_room, seed)


def partition_place(
    indptr: Offsets,
    indices: Ints,
    starts: Offsets,
    members: Ints,
    parts: Ints,
    num_parts: int,
    *,
    vertex_limit: int,
    edge_limit: int,
    steepness: int,
    strict: bool,
) -> int:
    """One pass that places every cluster anew; how many went to another part.

    From the first cluster to the last, each goes to the part p with the largest

        in-neighbours in p - (n (1 + E/N) x_v^q + e x_e^q) / 2        q = 2^steepness

    where n and e count the cluster's vertices and in-edges, and x_v and x_e what p would then hold of either beside
    the mean of all parts; on equal terms it stays. ``strict`` shuts parts that would hold more than the limits, except
    the one it is in; where all are shut it takes the least full. ``parts`` is int32 [N], -1 where a vertex has none
    yet, and is written.
    """
    return _native.partition_place(
        indptr, indices, starts, members, parts, num_parts, vertex_limit, edge_limit, steepness, strict
    )


def partition_deal(indptr: Offsets, order: Ints, num_parts: int, *, vertex_limit: int) -> Ints:
    """int32 [N], parts dealt without regard to edges' other ends.

    In the given order, each vertex goes to the part with the fewest in-edges, then vertices, then the lowest number,
    of those with fewer than ``vertex_limit`` vertices.
    """
    return _native.partition_deal(indptr, order, num_parts, vertex_limit)


def partition_cuts(indptr: Offsets, indices: Ints, parts: Ints, num_parts: int) -> tuple[Offsets, Offsets]:
    """(cut, ghosts), int64 [num_parts] each: in-edges of a part that come from others, and from how many vertices."""
    return _native.partition_cuts(indptr, indices, parts, num_parts)
