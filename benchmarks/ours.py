"""Dorylus as a contender: the same graph, the same recipe, every exact saving on, off, or one at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import dorylus
from benchmarks.shapes import Shape, is_sparse, read_arrays
from dorylus.saga import Recipe

SAVINGS = ("cache_first_gather", "narrow_gather", "prune_rows")
VARIANTS: Mapping[str, Mapping[str, bool]] = {
    "all savings": {},
    "no savings": dict.fromkeys(SAVINGS, False),
    **{f"without {saving}": {saving: False} for saving in SAVINGS},
}


class Ours:
    """A trainer that continues where it stopped; `epochs(k)` gives the seconds of k epochs.

    An epoch's time is that of the whole call, run log and all, as a user would see it on the clock.
    """

    def __init__(self, store: Path, model: str, shape: Shape, recipe: Mapping[str, float], savings: Mapping[str, bool]):
        self.trainer = dorylus.Trainer(
            dorylus.Graph.open(store),
            program(model, shape, recipe["dropout"]),
            epochs=10**9,
            lr=recipe["lr"],
            weight_decay=recipe["weight_decay"],
            threads=int(recipe["threads"]),
            seed=int(recipe["seed"]),
            eval_every=0,  # the peers do not evaluate either
            **savings,
        )

    def epochs(self, count: int) -> list[float]:
        return [self._epoch() for _ in range(count)]

    def _epoch(self) -> float:
        start = time.perf_counter()
        self.trainer.run(epochs=1)
        return time.perf_counter() - start


def program(model: str, shape: Shape, dropout: float) -> Recipe:
    """The model of the peers, as a recipe of ours."""
    if model == "gcn":
        return dorylus.gcn(hidden=shape.hidden, num_layers=2, dropout=dropout)
    return dorylus.gat(hidden=shape.head_width, heads=shape.heads, num_layers=2, dropout=dropout)


def write_store(folder: Path, store: Path) -> None:
    """Make a store of the arrays that the peers read; mostly-zero features stay sparse, as we load them."""
    arrays = read_arrays(folder)
    source, destination = arrays["edge_index"].astype(np.int32)
    graph = dorylus.Graph.from_edges(
        source,
        destination,
        num_vertices=len(arrays["x"]),
        undirected=True,
        features=dorylus.SparseFeatures.from_dense(arrays["x"]) if is_sparse(arrays["x"]) else arrays["x"],
        labels=arrays["y"],
        **{f"{name}_mask": arrays[name] for name in ("train", "val", "test")},
    )
    graph.save(store)
