"""Generators: ``communities`` (a degree-corrected block model), ``rmat`` (the recursive matrix model) and ``ring``."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dorylus.errors import ConfigError
from dorylus.graph.arrays import AnyArray, IdArray, OffsetArray
from dorylus.graph.generators.sampling import (
    both_directions,
    check_count,
    check_real,
    check_vertices,
    distinct_edges,
    one_direction,
    random_features,
    random_masks,
)
from dorylus.graph.graph import Graph

LEAST, MOST = 2.0, 100.0  # span of the propensity to have edges, before rounding down


def communities(
    num_vertices: int = 10_000,
    num_classes: int = 8,
    num_features: int = 32,
    *,
    average_degree: float = 20.0,
    homophily: float = 0.8,
    signal: float = 1.0,
    degree_exponent: float = 2.5,
    multilabel: bool = False,
    split: tuple[float, float] = (0.6, 0.2),
    seed: int = 0,
) -> Graph:
    """An undirected graph of ``num_classes`` communities with power-law degrees; a vertex's label is its community.

    A share ``homophily`` of the edges stays inside a community, the others go anywhere. A vertex's features are its
    community's direction, of length ``signal``, plus noise: weak alone, strong when averaged over neighbours, so that a
    graph network clearly beats a model without edges.
    ``multilabel`` puts about half of the vertices into a second community. Exactly
    round(num_vertices * average_degree / 2) edges are made, each stored in both directions.
    """
    check_vertices(num_vertices, num_classes, num_features, signal, seed)
    _check_communities(num_vertices, num_classes, average_degree, homophily, degree_exponent)
    rng = np.random.default_rng(seed)
    first, second = _memberships(rng, num_vertices, num_classes, multilabel)
    members = _Members.draw(rng, first, second, num_classes, degree_exponent)
    edges = distinct_edges(
        rng,
        lambda count: members.pairs(rng, count, homophily),
        round(num_vertices * average_degree / 2),
        undirected=True,
    )
    indptr, indices = both_directions(edges, num_vertices)
    labels: AnyArray = _label_matrix(first, second, num_classes) if multilabel else first.astype(np.int64)
    return Graph(
        indptr,
        indices,
        features=random_features(rng, labels, num_classes, num_features, signal),
        labels=labels,
        **random_masks(rng, num_vertices, split),
        name="communities",
        num_classes=num_classes,
        trust="everything",
    )


@dataclass(frozen=True)
class _Members:
    """The candidates for an edge's ends: each (vertex, community) repeated by its propensity, sorted by community.

    A uniform draw from all of ``vertex``, or from one community's part, is then a draw by propensity.
    """

    vertex: IdArray
    community: IdArray
    begin: OffsetArray

    @classmethod
    def draw(
        cls, rng: np.random.Generator, first: IdArray, second: IdArray, num_classes: int, exponent: float
    ) -> _Members:
        propensity = LEAST * (1.0 - rng.random(first.size)) ** (-1.0 / (exponent - 1.0))
        copies = np.minimum(propensity, MOST).astype(np.int64)
        also = np.flatnonzero(second != first)
        vertex = np.concatenate([np.arange(first.size), also]).astype(np.int32)
        community = np.concatenate([first, second[also]])
        by_community = np.argsort(community, kind="stable")
        repeats = copies[vertex[by_community]]
        community = np.repeat(community[by_community], repeats)
        begin = np.searchsorted(community, np.arange(num_classes + 1))
        return cls(np.repeat(vertex[by_community], repeats), community, begin)

    def pairs(self, rng: np.random.Generator, count: int, homophily: float) -> tuple[IdArray, IdArray]:
        """Sources drawn from all vertices, destinations from the source's community or from all vertices."""
        source = rng.integers(0, self.vertex.size, count)
        community = self.community[source]
        stays = rng.random(count, dtype=np.float32) < homophily
        begin = np.where(stays, self.begin[:-1][community], 0)
        end = np.where(stays, self.begin[1:][community], self.vertex.size)
        destination = begin + (rng.random(count) * (end - begin)).astype(np.int64)
        return self.vertex[source], self.vertex[destination]


def _memberships(
    rng: np.random.Generator, num_vertices: int, num_classes: int, multilabel: bool
) -> tuple[IdArray, IdArray]:
    """The first and second community of each vertex, equal where there is only one; sizes differ by at most one."""
    first = rng.permutation(np.arange(num_vertices, dtype=np.int32) % num_classes)
    if not multilabel:
        return first, first
    other = rng.integers(0, num_classes, num_vertices, dtype=np.int32)
    return first, np.where(rng.random(num_vertices) < 0.5, other, first)


def _label_matrix(first: IdArray, second: IdArray, num_classes: int) -> AnyArray:
    labels = np.zeros((first.size, num_classes), dtype=np.uint8)
    vertices = np.arange(first.size)
    labels[vertices, first] = 1
    labels[vertices, second] = 1
    return labels


def _check_communities(
    num_vertices: int, num_classes: int, average_degree: float, homophily: float, degree_exponent: float
) -> None:
    check_real(average_degree=average_degree, homophily=homophily, degree_exponent=degree_exponent)
    if num_classes > num_vertices:
        raise ConfigError(
            f"num_classes={num_classes} with num_vertices={num_vertices}, but every class has a vertex: use fewer "
            "classes or more vertices."
        )
    if not 0 <= homophily <= 1:
        raise ConfigError(f"homophily={homophily} is a share of the edges: use a number from 0 to 1.")
    if not 1 < degree_exponent < math.inf:
        raise ConfigError(
            f"degree_exponent={degree_exponent}, but degree_exponent is a finite number above 1: use 2 to 3, as usual."
        )
    room = (num_vertices / num_classes - 1) / 2
    if not (average_degree >= 0 and homophily * average_degree <= room):
        raise ConfigError(
            f"average_degree={average_degree} does not fit: with communities of {num_vertices // num_classes} vertices "
            f"and homophily {homophily} use from 0 to {room / max(homophily, 1e-9):.0f}, or more vertices."
        )


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

    The recursive matrix model of Chakrabarti, Zhan and Faloutsos (2004), skewed like real networks.

    The size is ``num_vertices``, or 2 ** ``scale`` (default 2 ** 14); ``num_edges`` defaults to 16 per vertex. An edge
    falls into the top-left, top-right and bottom-left quarter of the matrix with the probabilities ``quadrants``, the
    rest goes to the fourth, and so on inside the quarter. ``scramble`` renumbers the vertices at random; otherwise
    those of highest degree come first. Labels are random; features hint at them.
    """
    num_vertices = _rmat_size(num_vertices, scale)
    check_vertices(num_vertices, num_classes, num_features, signal, seed)
    num_edges = 16 * num_vertices if num_edges is None else num_edges
    _check_rmat(num_vertices, num_edges, quadrants, directed)
    rng = np.random.default_rng(seed)
    model = RecursiveMatrix(rng, num_vertices, quadrants, scramble)
    num_drawn = num_edges if directed else num_edges // 2
    edges = distinct_edges(rng, model.pairs, num_drawn, undirected=not directed)
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


class RecursiveMatrix:
    """Draws edges bit by bit, from the highest: 16 random bits choose the quarter at each level."""

    def __init__(self, rng: np.random.Generator, num_vertices: int, quadrants: Quadrants, scramble: bool) -> None:
        self._rng = rng
        self._num_vertices = num_vertices
        self._levels = max(num_vertices - 1, 1).bit_length()
        self._limits = np.round(np.cumsum(quadrants) * 65536).astype(np.uint32)
        self._number = rng.permutation(num_vertices).astype(np.int32) if scramble else None

    def pairs(self, count: int) -> tuple[IdArray, IdArray]:
        """Up to ``count`` edges: those that name a vertex beyond the last are dropped."""
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


def _rmat_size(num_vertices: int | None, scale: int | None) -> int:
    if num_vertices is not None and scale is not None:
        raise ConfigError(f"num_vertices={num_vertices} and scale={scale} both give the size: use one of them.")
    if num_vertices is not None:
        return num_vertices
    scale = 14 if scale is None else scale
    check_count("scale", scale, 0, 14)
    if scale > 30:
        raise ConfigError(f"scale={scale}, but a graph of rmat has less than 2**31 vertices: use scale=30 or less.")
    return int(2**scale)


def _check_rmat(num_vertices: int, num_edges: int, quadrants: Quadrants, directed: bool) -> None:
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


def ring(
    num_vertices: int = 1_000,
    num_classes: int = 4,
    num_features: int = 16,
    *,
    directed: bool = False,
    signal: float = 1.0,
    split: tuple[float, float] = (0.6, 0.2),
    seed: int = 0,
) -> Graph:
    """A cycle 0 - 1 - ... - 0 (``directed``: v -> v + 1), cut into ``num_classes`` arcs that are the labels."""
    check_vertices(num_vertices, num_classes, num_features, signal, seed)
    if num_vertices < 3 or num_classes > num_vertices:
        raise ConfigError(
            f"num_vertices={num_vertices} with num_classes={num_classes}, but a ring has at least 3 vertices and at "
            "most one class a vertex: use more vertices, or fewer classes."
        )
    rng = np.random.default_rng(seed)
    vertex = np.arange(num_vertices)
    labels = vertex * num_classes // num_vertices
    return Graph.from_edges(
        vertex,
        np.roll(vertex, -1),
        num_vertices,
        undirected=not directed,
        features=random_features(rng, labels, num_classes, num_features, signal),
        labels=labels,
        **random_masks(rng, num_vertices, split),
        name="ring",
        num_classes=num_classes,
    )
