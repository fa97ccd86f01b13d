"""Random parts of generated graphs: an exact number of distinct edges, features that depend on labels, and masks.

An edge is one int64, source in the upper half and destination in the lower: sorting finds repeats, and the halves are
read as int32 without a division.
"""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from dorylus.backends import native
from dorylus.errors import ConfigError, short_repr
from dorylus.graph.arrays import AnyArray, FloatArray, IdArray, OffsetArray

EDGES_AT_ONCE = 1 << 20  # edges drawn at a time: temporaries fit into the cache
ROUNDS = 40

Draw = Callable[[int], tuple[AnyArray, AnyArray]]


def distinct_edges(rng: np.random.Generator, draw: Draw, num_edges: int, *, undirected: bool) -> OffsetArray:
    """``num_edges`` distinct edges without self loops as ascending int64; undirected ones have source < destination.

    ``draw(count)`` returns the sources and destinations of ``count`` random edges.
    """
    edges = np.empty(0, dtype=np.int64)
    fresh_share = 0.9  # share of new edges in the previous round
    for _ in range(ROUNDS):
        missing = num_edges - edges.size
        if missing <= 0:
            return _thin(rng, edges, num_edges)
        count, before = round(missing / fresh_share) + 16, edges.size
        edges = _merge(edges, _draw_many(draw, count, undirected))
        fresh_share = min(max((edges.size - before) / count, 0.2), 0.95)
    raise ConfigError(
        f"found only {edges.size:,} of {num_edges:,} distinct edges: the requested graph is nearly complete. "
        "Use fewer edges or more vertices."
    )


def both_directions(edges: OffsetArray, num_vertices: int) -> tuple[OffsetArray, IdArray]:
    """(indptr, indices) of the undirected graph with these edges."""
    halves = edges.view(np.int32).reshape(-1, 2)
    rows = np.concatenate([halves[:, 0], halves[:, 1]])
    columns = np.concatenate([halves[:, 1], halves[:, 0]])
    indptr, indices, _ = native.csr_build(rows, columns, num_vertices, num_vertices)
    return indptr, indices


def one_direction(edges: OffsetArray, num_vertices: int) -> tuple[OffsetArray, IdArray]:
    """(indptr, indices) of the directed graph with these edges."""
    halves = edges.view(np.int32).reshape(-1, 2)
    destination, source = np.ascontiguousarray(halves[:, 0]), np.ascontiguousarray(halves[:, 1])
    indptr, indices, _ = native.csr_build(destination, source, num_vertices, num_vertices)
    return indptr, indices


def _draw_many(draw: Draw, count: int, undirected: bool) -> OffsetArray:
    edges = np.empty(count, dtype=np.int64)
    filled = 0
    for begin in range(0, count, EDGES_AT_ONCE):
        source, destination = draw(min(EDGES_AT_ONCE, count - begin))
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


ENTRIES_AT_ONCE = 1 << 21  # feature entries drawn at a time

Split = tuple[float, float]


def check_count(name: str, value: float, least: int, usual: int) -> None:
    """Refuse a count that is not a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Real) or not value >= least or value % 1:
        raise ConfigError(
            f"{name}={short_repr(value)}, but {name} is a whole number, at least {least}: use {name}={usual}, for "
            "instance."
        )


def check_real(**values: object) -> None:
    """Refuse what is no number."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ConfigError(f"{name}={short_repr(value)}, but {name} is a number: use {name}=1, for instance.")


def check_vertices(num_vertices: int, num_classes: int, num_features: int, signal: float, seed: int) -> None:
    """Refuse parameters of vertices that no generator accepts."""
    check_count("num_vertices", num_vertices, 0, 10_000)
    check_count("num_classes", num_classes, 1, 8)
    check_count("num_features", num_features, 0, 32)
    check_count("seed", seed, 0, 0)
    check_real(signal=signal)
    if not math.isfinite(signal):
        raise ConfigError(f"signal={signal}, but signal is a finite number: use signal=1, for instance.")


def random_features(
    rng: np.random.Generator, labels: AnyArray, num_classes: int, num_features: int, signal: float
) -> FloatArray:
    """float32 [N, F]: each class has a random direction of length ``signal``; a vertex adds normal noise to its own.

    With several labels a vertex adds up their directions. The noise has length near sqrt(F), so at a signal of 1 a
    single row hardly identifies its class, and the mean of twenty rows of that class does.
    """
    directions = rng.standard_normal((num_classes, num_features), dtype=np.float32)
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    directions *= np.float32(signal) / np.maximum(lengths, np.finfo(np.float32).tiny)
    features = np.empty((len(labels), num_features), dtype=np.float32)
    step = max(ENTRIES_AT_ONCE // max(num_features, 1), 1)
    for begin in range(0, len(labels), step):
        part, own = features[begin : begin + step], labels[begin : begin + step]
        rng.standard_normal(dtype=np.float32, out=part)
        part += directions[own] if own.ndim == 1 else own.astype(np.float32) @ directions
    return features


def random_masks(rng: np.random.Generator, num_vertices: int, split: Split) -> dict[str, Any]:
    """train, validation and test masks: ``split`` gives the shares of the first two, the third takes the rest."""
    train, val = split
    if not (train >= 0 and val >= 0 and train + val <= 1):
        raise ConfigError(
            f"split={split}, but the shares of train and validation are at least 0 and add up to at most 1: use "
            "split=(0.6, 0.2), for instance."
        )
    num_train, num_val = round(train * num_vertices), round(val * num_vertices)
    order = rng.permutation(num_vertices)
    parts = np.split(order, [num_train, min(num_train + num_val, num_vertices)])
    masks = {}
    for name, part in zip(("train_mask", "val_mask", "test_mask"), parts, strict=True):
        masks[name] = np.zeros(num_vertices, dtype=np.bool_)
        masks[name][part] = True
    return masks
