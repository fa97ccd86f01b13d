"""What generated vertices carry: labels, features that hint at them, and masks; and what may be asked for."""

import math
from typing import Any

import numpy as np

from dorylus.errors import ConfigError, shown
from dorylus.graph.arrays import AnyArray, FloatArray

STEP = 1 << 21  # feature entries made together

Split = tuple[float, float]


def check_count(name: str, value: float, least: int, usual: int) -> None:
    """Refuse a count that is not a whole number of at least so many."""
    if not value >= least or value % 1:
        raise ConfigError(
            f"{name}={shown(value)}, but {name} is a whole number, at least {least}: use {name}={usual}, for instance."
        )


def check_vertices(num_vertices: int, num_classes: int, num_features: int, signal: float, seed: int) -> None:
    """Refuse vertices that no generator can make."""
    check_count("num_vertices", num_vertices, 0, 10_000)
    check_count("num_classes", num_classes, 1, 8)
    check_count("num_features", num_features, 0, 32)
    check_count("seed", seed, 0, 0)
    if not math.isfinite(signal):
        raise ConfigError(f"signal={signal}, but signal is a finite number: use signal=1, for instance.")


def random_features(
    rng: np.random.Generator, labels: AnyArray, num_classes: int, num_features: int, signal: float
) -> FloatArray:
    """float32 [N, F]: each class has a random direction of length ``signal``; a vertex adds normal noise to its own.

    With several labels a vertex adds up their directions. The noise has length near sqrt(F), so at a signal of 1 a
    single row says little about its class and the mean of twenty rows of that class says a lot.
    """
    directions = rng.standard_normal((num_classes, num_features), dtype=np.float32)
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    directions *= np.float32(signal) / np.maximum(lengths, np.finfo(np.float32).tiny)
    features = np.empty((len(labels), num_features), dtype=np.float32)
    step = max(STEP // max(num_features, 1), 1)
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
