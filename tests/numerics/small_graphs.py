"""Small graphs with the special cases: hubs, isolated vertices, sinks, sources, self loops."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

import dorylus

NUM_VERTICES, NUM_FEATURES, NUM_CLASSES = 230, 19, 5


@dataclass(frozen=True, eq=False)
class Sample:
    """The same graph for us and as PyG's plain arrays, built without our code."""

    graph: dorylus.Graph
    edge_index: NDArray[np.int64]
    edge_weight: NDArray[np.float32] | None
    x: NDArray[np.float32]
    y: NDArray[np.int64]
    train_mask: NDArray[np.bool_]


@cache
def sample(*, directed: bool, weighted: bool = False, seed: int = 0) -> Sample:
    """A random graph of hubs; its last ten vertices have no edges, and every ninth of the others has a self loop."""
    rng = np.random.default_rng(seed)
    source, destination = _edges(rng, directed)
    weight = rng.uniform(0.5, 1.5, len(source)).astype(np.float32) if weighted else None
    x = rng.standard_normal((NUM_VERTICES, NUM_FEATURES), dtype=np.float32)
    y = rng.integers(0, NUM_CLASSES, NUM_VERTICES)
    y[:NUM_CLASSES] = np.arange(NUM_CLASSES)
    part = rng.integers(0, 10, NUM_VERTICES)
    masks = {"train_mask": part < 4, "val_mask": part == 4, "test_mask": part > 4}
    graph = dorylus.Graph.from_edges(
        source,
        destination,
        num_vertices=NUM_VERTICES,
        undirected=not directed,
        edge_weight=weight,
        features=x,
        labels=y,
        **masks,
    )
    if not directed:
        source, destination = _both_ways(source, destination)
    return Sample(graph, np.stack([source, destination]), weight, x, y, masks["train_mask"])


def _edges(rng: np.random.Generator, directed: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    last = NUM_VERTICES - 10
    skewed = (last * rng.random((2, 1500)) ** 2).astype(np.int64)
    looped = np.arange(0, last, 9)
    edges = np.concatenate([skewed, np.stack([looped, looped])], axis=1)
    if not directed:
        edges = np.sort(edges, axis=0)
    source, destination = np.unique(edges, axis=1)
    return source, destination


def _both_ways(
    source: NDArray[np.int64], destination: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    once = source != destination
    return np.concatenate([source, destination[once]]), np.concatenate([destination, source[once]])
