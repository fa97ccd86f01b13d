"""Drawing random edges until there are exactly as many distinct ones as asked for.

An edge is one int64, source in the upper half and destination in the lower: sorting finds repeats, and reading the
halves as int32 takes no division.
"""

from collections.abc import Callable

import numpy as np

from dorylus import kernels
from dorylus.errors import ConfigError
from dorylus.graph.arrays import AnyArray, IdArray, OffsetArray

STEP = 1 << 20  # edges drawn together: what is made on the way fits the cache
ROUNDS = 40

Draw = Callable[[int], tuple[AnyArray, AnyArray]]


def distinct_edges(rng: np.random.Generator, draw: Draw, num_edges: int, *, undirected: bool) -> OffsetArray:
    """``num_edges`` distinct edges without self loops as ascending int64; undirected ones have source < destination.

    ``draw(count)`` gives the sources and destinations of ``count`` random edges.
    """
    edges = np.empty(0, dtype=np.int64)
    fresh_share = 0.9  # of the edges drawn in the round before, how many were new
    for _ in range(ROUNDS):
        missing = num_edges - edges.size
        if missing <= 0:
            return _thin(rng, edges, num_edges)
        count, before = round(missing / fresh_share) + 16, edges.size
        edges = _merge(edges, _draw_many(draw, count, undirected))
        fresh_share = min(max((edges.size - before) / count, 0.2), 0.95)
    raise ConfigError(
        f"found only {edges.size:,} of {num_edges:,} distinct edges: the graph asked for is nearly complete. "
        "Ask for fewer edges or more vertices."
    )


def both_directions(edges: OffsetArray, num_vertices: int) -> tuple[OffsetArray, IdArray]:
    """(indptr, indices) of the undirected graph with these edges."""
    halves = edges.view(np.int32).reshape(-1, 2)
    rows = np.concatenate([halves[:, 0], halves[:, 1]])
    columns = np.concatenate([halves[:, 1], halves[:, 0]])
    indptr, indices, _ = kernels.csr_build(rows, columns, num_vertices, num_vertices)
    return indptr, indices


def one_direction(edges: OffsetArray, num_vertices: int) -> tuple[OffsetArray, IdArray]:
    """(indptr, indices) of the directed graph with these edges."""
    halves = edges.view(np.int32).reshape(-1, 2)
    destination, source = np.ascontiguousarray(halves[:, 0]), np.ascontiguousarray(halves[:, 1])
    indptr, indices, _ = kernels.csr_build(destination, source, num_vertices, num_vertices)
    return indptr, indices


def _draw_many(draw: Draw, count: int, undirected: bool) -> OffsetArray:
    edges = np.empty(count, dtype=np.int64)
    filled = 0
    for begin in range(0, count, STEP):
        source, destination = draw(min(STEP, count - begin))
        if undirected:
            source, destination = np.minimum(source, destination), np.maximum(source, destination)
        proper = source != destination
        packed = (source[proper].astype(np.int64) << 32) | destination[proper]
        edges[filled : filled + packed.size] = packed
        filled += packed.size
    return edges[:filled]


def _merge(edges: OffsetArray, fresh: OffsetArray) -> OffsetArray:
    merged = np.concatenate([edges, fresh]) if edges.size else fresh
    merged.sort()
    keep = np.ones(merged.size, dtype=np.bool_)
    np.not_equal(merged[1:], merged[:-1], out=keep[1:])
    return merged[keep]


def _thin(rng: np.random.Generator, edges: OffsetArray, count: int) -> OffsetArray:
    keep = np.ones(edges.size, dtype=np.bool_)
    keep[rng.choice(edges.size, edges.size - count, replace=False, shuffle=False)] = False
    return edges[keep]
