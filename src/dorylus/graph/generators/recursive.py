"""rmat: the recursive-matrix model of Chakrabarti, Zhan and Faloutsos (2004), skewed like real networks."""

import numpy as np

from dorylus.errors import ConfigError
from dorylus.graph.arrays import IdArray
from dorylus.graph.generators.drawing import (
    both_directions,
    check_count,
    check_vertices,
    distinct_edges,
    one_direction,
    random_features,
    random_masks,
)
from dorylus.graph.graph import Graph

Quadrants = tuple[float, float, float]
QUADRANTS: Quadrants = (0.57, 0.19, 0.19)


def rmat(
    num_vertices: int | None = None,
    num_edges: int | None = None,
    *,
    scale: int | None = None,
    num_features: int = 16,
    num_classes: int = 8,
    quadrants: Quadrants = QUADRANTS,
    directed: bool = False,
    scramble: bool = True,
    signal: float = 1.0,
    split: tuple[float, float] = (0.6, 0.2),
    seed: int = 0,
) -> Graph:
    """A graph with heavy-tailed degrees: ``num_edges`` directed edges stored, without repeats or self loops.

    The size is ``num_vertices``, or 2 ** ``scale`` (default 2 ** 14); ``num_edges`` defaults to 16 a vertex. An edge
    falls into the top-left, top-right and bottom-left quarter of the matrix with the probabilities ``quadrants``, the
    rest goes to the fourth, and so on inside the quarter. ``scramble`` renumbers the vertices at random, as otherwise
    the busiest come first. Labels are random; features hint at them.
    """
    num_vertices = _size(num_vertices, scale)
    check_vertices(num_vertices, num_classes, num_features, signal, seed)
    num_edges = 16 * num_vertices if num_edges is None else num_edges
    _check(num_vertices, num_edges, quadrants, directed)
    rng = np.random.default_rng(seed)
    model = Recursion(rng, num_vertices, quadrants, scramble)
    wanted = num_edges if directed else num_edges // 2
    edges = distinct_edges(rng, model.pairs, wanted, undirected=not directed)
    indptr, indices = (one_direction if directed else both_directions)(edges, num_vertices)
    del edges
    labels = rng.integers(0, num_classes, num_vertices)
    return Graph(
        indptr,
        indices,
        features=random_features(rng, labels, num_classes, num_features, signal),
        labels=labels,
        **random_masks(rng, num_vertices, split),
        directed=directed,
        name="rmat",
        num_classes=num_classes,
        trust="everything",
    )


class Recursion:
    """Draws edges bit by bit, from the highest: 16 random bits choose the quarter at each level."""

    def __init__(self, rng: np.random.Generator, num_vertices: int, quadrants: Quadrants, scramble: bool) -> None:
        self._rng = rng
        self._num_vertices = num_vertices
        self._levels = max(num_vertices - 1, 1).bit_length()
        self._limits = np.round(np.cumsum(quadrants) * 65536).astype(np.uint32)
        self._number = rng.permutation(num_vertices).astype(np.int32) if scramble else None

    def pairs(self, count: int) -> tuple[IdArray, IdArray]:
        """Up to ``count`` edges: those that name a vertex beyond the last are left out."""
        source, destination = np.zeros(count, dtype=np.int32), np.zeros(count, dtype=np.int32)
        top_left, top, bottom_left = self._limits
        for _ in range(self._levels):
            dice = self._rng.integers(0, 65536, count, dtype=np.uint16)
            below = dice >= top
            right = (dice >= top_left) ^ below | (dice >= bottom_left)
            source += source
            source |= below
            destination += destination
            destination |= right
        inside = (source < self._num_vertices) & (destination < self._num_vertices)
        source, destination = source[inside], destination[inside]
        if self._number is None:
            return source, destination
        return self._number[source], self._number[destination]


def _size(num_vertices: int | None, scale: int | None) -> int:
    if num_vertices is not None and scale is not None:
        raise ConfigError(f"num_vertices={num_vertices} and scale={scale} both give the size: use one of them.")
    if num_vertices is not None:
        return num_vertices
    scale = 14 if scale is None else scale
    check_count("scale", scale, 0, 14)
    if scale > 30:
        raise ConfigError(f"scale={scale}, but a graph of rmat has less than 2**31 vertices: use scale=30 or less.")
    return int(2**scale)


def _check(num_vertices: int, num_edges: int, quadrants: Quadrants, directed: bool) -> None:
    if not (min(quadrants) >= 0 and sum(quadrants) <= 1):
        raise ConfigError(
            f"quadrants={quadrants}, but quadrants are three probabilities that add up to at most 1, and the fourth is "
            f"the rest: use {QUADRANTS}, for instance."
        )
    room = num_vertices * (num_vertices - 1) // 2
    if not 0 <= num_edges <= room:
        raise ConfigError(
            f"num_edges={num_edges:,} with {num_vertices:,} vertices: use from 0 to {room:,}, half of all possible."
        )
    if not directed and num_edges % 2:
        raise ConfigError(
            f"num_edges={num_edges} is odd, but an undirected graph stores each edge twice: use an even number."
        )
