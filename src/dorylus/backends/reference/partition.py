"""The reference's part for cutting a graph: one vertex, one cluster, one part after another."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from dorylus.backends.native.types import Ints, Offsets

WORD = 2**64 - 1


def partition_held(indptr: Offsets, labels: Ints, num_labels: int) -> Offsets:
    """See :func:`dorylus.backends.native.partition_held`."""
    holders = [np.flatnonzero(labels == label) for label in range(num_labels)]
    return np.array([(len(each), _edges(indptr, each)) for each in holders], np.int64).reshape(num_labels, 2)


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
    """See :func:`dorylus.backends.native.partition_merge`."""
    moved = 0
    for number, (cluster, rows) in reversed(list(enumerate(_clusters(starts, members, in_order)))):
        work = np.array([len(cluster), _edges(indptr, rows)])
        if work[0] >= vertex_room or work[1] >= edge_room:
            continue
        own = int(labels[cluster[0]])
        seen = _seen(indptr, indices, cluster, rows, labels)
        held[own] -= work
        best, best_rank, salt = own, WORD, _mixed(seed ^ ((first_cluster + number) << 32))
        for label in seen:
            if label == own or (held[label] + work > [vertex_room, edge_room]).any():
                continue
            rank = _mixed(salt ^ label)
            if (seen[label], rank) > (seen[best], best_rank):
                best, best_rank = label, rank
        labels[cluster] = best
        held[best] += work
        moved += best != own
    return moved


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
    """See :func:`dorylus.backends.native.partition_place`."""
    num_vertices, num_parts = len(parts), len(held)
    moved = 0
    for cluster, rows in _clusters(starts, members, in_order):
        own = int(parts[cluster[0]])
        seen = _seen(indptr, indices, cluster, rows, parts)
        work = len(cluster), _edges(indptr, rows)
        if own >= 0:
            held[own] -= work
        scores, fullness = {}, {}
        for part in range(num_parts):
            vertices, edges = (held[part] + work).tolist()
            x_v = vertices * (num_parts / num_vertices)
            x_e = edges * (num_parts / num_edges) if num_edges else 0.0
            fullness[part] = max(x_v, x_e)
            if strict and part != own and (vertices > vertex_limit or edges > edge_limit):
                continue
            dear = work[0] * (1.0 + num_edges / num_vertices) * _raised(x_v, steepness)
            scores[part] = (seen[part] - 0.5 * (dear + work[1] * _raised(x_e, steepness)), part == own, -part)
        best = max(scores, key=lambda part: scores[part]) if scores else min(fullness, key=lambda part: fullness[part])
        parts[cluster] = best
        held[best] += work
        moved += best != own
    return moved


def partition_deal(indptr: Offsets, order: Ints, num_parts: int, *, vertex_limit: int) -> Ints:
    """See :func:`dorylus.backends.native.partition_deal`."""
    parts = np.full(len(order), -1, np.int32)
    for vertex in order.tolist():
        held = [np.flatnonzero(parts == part) for part in range(num_parts)]
        open_parts = [part for part in range(num_parts) if len(held[part]) < vertex_limit]
        parts[vertex] = min(open_parts, key=lambda part: (_edges(indptr, held[part]), len(held[part]), part))
    return parts


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
    """See :func:`dorylus.backends.native.partition_across`."""
    cut = 0
    for row, (first, last) in enumerate(pairwise(indptr), start=first_row):
        for column in indices[first:last].tolist():
            if parts[column] == parts[row]:
                continue
            cut += 1
            readers[column] |= _bit(parts[row] - first_part)
            if targets is not None:
                targets[row] |= _bit(parts[column] - first_part)
    return cut


def _bit(number: int) -> Any:
    """The int32 that has one bit alone, for a number below 32; else none."""
    return np.uint32(1 << number if 0 <= number < 32 else 0).astype(np.int32)


def _clusters(starts: Offsets, members: Ints, in_order: bool) -> Iterable[tuple[Ints, Ints]]:
    """(members, their rows) of every cluster."""
    rows = np.arange(len(members), dtype=np.int32) if in_order else members
    return [(members[first:last], rows[first:last]) for first, last in pairwise(starts)]


def _edges(indptr: Offsets, vertices: Iterable[int]) -> int:
    return sum(int(indptr[v + 1] - indptr[v]) for v in vertices)


def _seen(indptr: Offsets, indices: Ints, cluster: Ints, rows: Ints, labels: Ints) -> Counter[int]:
    """How many in-neighbours outside the cluster carry each label."""
    sources = [u for row in rows for u in indices[indptr[row] : indptr[row + 1]].tolist()]
    return Counter(int(labels[u]) for u in sources if u not in cluster and labels[u] >= 0)


def _raised(x: float, steepness: int) -> float:
    for _ in range(steepness):
        x = x * x
    return x


def _mixed(x: int) -> int:
    """The finaliser of MurmurHash3."""
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCD & WORD
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53 & WORD
    return x ^ (x >> 33)
