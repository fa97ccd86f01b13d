"""communities: a degree-corrected block model, on which a graph network clearly beats one that sees no edges."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dorylus.errors import ConfigError
from dorylus.graph.arrays import AnyArray, IdArray, OffsetArray
from dorylus.graph.generators.drawing import (
    both_directions,
    check_vertices,
    distinct_edges,
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
    community's direction, ``signal`` long, plus noise: alone they say little, averaged over neighbours a lot.
    ``multilabel`` puts about half of the vertices into a second community. Exactly
    round(num_vertices * average_degree / 2) edges are made, each stored in both directions.
    """
    check_vertices(num_vertices, num_classes, num_features, signal, seed)
    _check(num_vertices, num_classes, average_degree, homophily, degree_exponent)
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
    """Who may be at an end of an edge: each (vertex, community) as often as its propensity, sorted by community.

    A uniform pick from all of ``vertex``, or from one community's part, is then a pick by propensity.
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
        """Sources picked from everybody, destinations from the source's community or from everybody."""
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
    everyone = np.arange(first.size)
    labels[everyone, first] = 1
    labels[everyone, second] = 1
    return labels


def _check(
    num_vertices: int, num_classes: int, average_degree: float, homophily: float, degree_exponent: float
) -> None:
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
