"""The reference's part for cutting a graph: one vertex, one cluster, one part after another."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from dorylus.kernels._arrays import Ints, Offsets

WORD = 2**64 - 1


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
    """See :func:`dorylus.kernels.partition_merge`."""
    moved = 0
    for number, cluster in reversed(list(enumerate(_clusters(starts, members)))):
        num_vertices, num_edges = len(cluster), _edges(indptr, cluster)
        if num_vertices >= vertex_room or num_edges >= edge_room:
            continue
        own = int(labels[cluster[0]])
        seen = _seen(indptr, indices, cluster, labels)
        labels[cluster] = -1
        best, best_rank, salt = own, WORD, _mixed(seed ^ (number << 32))
        for label in seen:
            holds = np.flatnonzero(labels == label)
            full = len(holds) + num_vertices > vertex_room or _edges(indptr, holds) + num_edges > edge_room
            if label == own or full:
                continue
            rank = _mixed(salt ^ label)
            if (seen[label], rank) > (seen[best], best_rank):
                best, best_rank = label, rank
        labels[cluster] = best
        moved += best != own
    return moved


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
    """See :func:`dorylus.kernels.partition_place`."""
    num_rows, num_all_edges = len(indptr) - 1, int(indptr[-1])
    moved = 0
    for cluster in _clusters(starts, members):
        own = int(parts[cluster[0]])
        seen = _seen(indptr, indices, cluster, parts)
        parts[cluster] = -1
        num_vertices, num_edges = len(cluster), _edges(indptr, cluster)
        scores, fullness = {}, {}
        for part in range(num_parts):
            holds = np.flatnonzero(parts == part)
            vertices, edges = len(holds) + num_vertices, _edges(indptr, holds) + num_edges
            x_v = vertices * (num_parts / num_rows)
            x_e = edges * (num_parts / num_all_edges) if num_all_edges else 0.0
            fullness[part] = max(x_v, x_e)
            if strict and part != own and (vertices > vertex_limit or edges > edge_limit):
                continue
            dear = num_vertices * (1.0 + num_all_edges / num_rows) * _raised(x_v, steepness)
            scores[part] = (seen[part] - 0.5 * (dear + num_edges * _raised(x_e, steepness)), part == own, -part)
        best = max(scores, key=lambda part: scores[part]) if scores else min(fullness, key=lambda part: fullness[part])
        parts[cluster] = best
        moved += best != own
    return moved


def partition_deal(indptr: Offsets, order: Ints, num_parts: int, *, vertex_limit: int) -> Ints:
    """See :func:`dorylus.kernels.partition_deal`."""
    parts = np.full(len(order), -1, np.int32)
    for vertex in order.tolist():
        held = [np.flatnonzero(parts == part) for part in range(num_parts)]
        open_parts = [part for part in range(num_parts) if len(held[part]) < vertex_limit]
        parts[vertex] = min(open_parts, key=lambda part: (_edges(indptr, held[part]), len(held[part]), part))
    return parts


def partition_cuts(indptr: Offsets, indices: Ints, parts: Ints, num_parts: int) -> tuple[Offsets, Offsets]:
    """See :func:`dorylus.kernels.partition_cuts`."""
    outside: list[list[int]] = [[] for _ in range(num_parts)]
    for vertex, (first, last) in enumerate(pairwise(indptr)):
        own = parts[vertex]
        outside[own] += [source for source in indices[first:last].tolist() if parts[source] != own]
    cut = np.array([len(sources) for sources in outside], np.int64)
    return cut, np.array([len(set(sources)) for sources in outside], np.int64)


def _clusters(starts: Offsets, members: Ints) -> Iterable[Ints]:
    return [members[first:last] for first, last in pairwise(starts)]


def _edges(indptr: Offsets, vertices: Iterable[int]) -> int:
    return sum(int(indptr[v + 1] - indptr[v]) for v in vertices)


def _seen(indptr: Offsets, indices: Ints, cluster: Ints, labels: Ints) -> Counter[int]:
    """How many in-neighbours outside the cluster carry each label."""
    sources = [u for v in cluster for u in indices[indptr[v] : indptr[v + 1]].tolist()]
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
