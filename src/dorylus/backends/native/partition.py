"""Cutting a graph into parts by streaming over it, and seeing what crosses a cut.

Vertices move in clusters: cluster c holds ``members[starts[c]:starts[c + 1]]``, every vertex is in one, and those with
the most in-edges come first. A pass reads every in-edge once and keeps O(vertices) memory beside the graph. It may be
made in several calls, each with some clusters that follow one another: ``in_order``, ``indptr`` and ``indices`` are
then the in-edges of these clusters' members alone, a row a member. ``held``, int64 [labels, 2], says how many vertices
and in-edges every label or part holds; a pass keeps it up to date.
"""

from dorylus.backends.native import _native
from dorylus.backends.native.types import Ints, Offsets


def partition_held(indptr: Offsets, labels: Ints, num_labels: int) -> Offsets:
    """int64 [num_labels, 2]: how many vertices carry each label, and how many in-edges those have; -1 is no label."""
    return _native.partition_held(indptr, labels, num_labels).reshape(num_labels, 2)


def partition_merge(
    indptr: Offsets,
    indices: Ints,
    starts: Offsets,
    members: Ints,
    labels: Ints,
    held: Offsets,
    *,
    vertex_room: int,
    edge_room: int,
    seed: int,
    first_cluster: int = 0,
    in_order: bool = False,
) -> int:
    """One pass that merges clusters with their neighbours; how many took another label.

    From the last cluster to the first, each takes the label it sees on most of its in-neighbours outside it, of those
    that it would not lead past ``vertex_room`` vertices or ``edge_room`` in-edges; on equal terms it keeps its own, or
    takes the one the seed ranks first. ``labels`` is int32 [N] with numbers below N, one a cluster, and is written.
    A part of a pass has the clusters from ``first_cluster`` on; the last part comes first.
    """
    rooms = vertex_room, edge_room, seed, first_cluster, in_order
    return _native.partition_merge(indptr, indices, starts, members, labels, held.reshape(-1), *rooms)


def partition_place(
    indptr: Offsets,
    indices: Ints,
    starts: Offsets,
    members: Ints,
    parts: Ints,
    held: Offsets,
    *,
    num_edges: int,
    vertex_limit: int,
    edge_limit: int,
    steepness: int,
    strict: bool,
    in_order: bool = False,
) -> int:
    """One pass that places every cluster anew; how many went to another part.

    From the first cluster to the last, each goes to the part p with the largest

        in-neighbours in p - (n (1 + E/N) x_v^q + e x_e^q) / 2        q = 2^steepness

    where n and e count the cluster's vertices and in-edges, E is ``num_edges``, and x_v and x_e what p would then hold
    of either beside the mean of all parts; on equal terms it stays. ``strict`` shuts parts that would hold more than
    the limits, except the one it is in; where all are shut it takes the least full. ``parts`` is int32 [N], -1 where a
    vertex has none yet, and is written.
    """
    how = num_edges, vertex_limit, edge_limit, steepness, strict, in_order
    return _native.partition_place(indptr, indices, starts, members, parts, held.reshape(-1), *how)


def partition_deal(indptr: Offsets, order: Ints, num_parts: int, *, vertex_limit: int) -> Ints:
    """int32 [N], parts dealt without regard to edges' other ends.

    In the given order, each vertex goes to the part with the fewest in-edges, then vertices, then the lowest number,
    of those with fewer than ``vertex_limit`` vertices.
    """
    return _native.partition_deal(indptr, order, num_parts, vertex_limit)


def partition_across(
    indptr: Offsets,
    indices: Ints,
    parts: Ints,
    readers: Ints,
    targets: Ints | None = None,
    *,
    first_part: int = 0,
    first_row: int = 0,
) -> int:
    """How many edges of some rows, numbered from ``first_row`` on, come from another part than the row's.

    Part first_part + i has bit i, for i below 32. ``readers``, int32 [N], gets at every column the bits of the other
    parts with a row that has it; ``targets``, if given, at every row the bits of the other parts its columns are in.
    """
    return _native.partition_across(indptr, indices, parts, readers, targets, first_part, first_row)
