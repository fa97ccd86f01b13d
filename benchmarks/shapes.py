"""The graphs of the benchmarks: real ones where their files are at hand, else generated ones of the same size.

Every contender reads the same arrays from one folder: `.npy` files for the peers, a store made of them for us.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A graph's size and the widths of the models trained on it."""

    name: str
    num_vertices: int
    num_edges: int  # directed: every undirected edge counts twice
    num_features: int
    hidden: int
    num_classes: int
    split: tuple[float, float, float] = (0.66, 0.10, 0.24)  # train, validation, test: Reddit's
    file: str | None = None  # a real graph of this shape, in the folder given by --data
    heads: int = 8
    head_width: int = 8

    def message_bytes(self, model: str) -> int:
        """Bytes of one edges x width message array, which decides what an `edge_index` peer needs."""
        width = self.hidden if model == "gcn" else self.heads * self.head_width
        return 4 * (self.num_edges + self.num_vertices) * width


SHAPES: Mapping[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape(name="reddit", num_vertices=46_000, num_edges=11_500_000, num_features=602, hidden=128, num_classes=41),
        Shape(name="amazon", num_vertices=460_000, num_edges=15_700_000, num_features=300, hidden=64, num_classes=25),
        Shape(
            name="pubmed",
            num_vertices=19_717,
            num_edges=88_648,
            num_features=500,
            hidden=16,
            num_classes=3,
            split=(0.003, 0.025, 0.05),
            file="pubmed.npz",
        ),
        Shape(
            name="cora",
            num_vertices=2_708,
            num_edges=10_556,
            num_features=1_433,
            hidden=16,
            num_classes=7,
            split=(0.05, 0.18, 0.37),
            file="cora.npz",
        ),
    )
}


def prepare(shape: Shape, folder: Path, data: Path | None) -> str:
    """Write the shape's arrays into folder; returns their origin."""
    real = data / shape.file if data is not None and shape.file else None
    arrays = read_plain(real) if real is not None and real.exists() else generate(shape)
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return "real" if real is not None and real.exists() else "generated"


def read_arrays(folder: Path) -> Arrays:
    """The arrays that `prepare` wrote."""
    return {path.stem: np.load(path) for path in sorted(folder.glob("*.npy"))}


def is_sparse(x: NDArray) -> bool:
    """Whether features are mostly zeros, so that contenders which can hold them sparse do."""
    return bool(np.mean(x != 0) < 0.25)


def generate(shape: Shape, seed: int = 0) -> Arrays:
    """A graph with power-law degrees, three quarters of its edges inside classes, features that lean to their class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, shape.num_classes, shape.num_vertices)
    centres = rng.standard_normal((shape.num_classes, shape.num_features), dtype=np.float32)
    x = rng.standard_normal((shape.num_vertices, shape.num_features), dtype=np.float32) * 3
    x += centres[labels]
    draw = rng.random(shape.num_vertices)
    bounds = np.cumsum((0.0, *shape.split))
    masks = {
        name: (draw >= low) & (draw < high)
        for name, low, high in zip(("train", "val", "test"), bounds[:-1], bounds[1:], strict=True)
    }
    return {"edge_index": power_law_edges(rng, labels, shape.num_edges // 2), "x": x, "y": labels, **masks}


def power_law_edges(
    rng: np.random.Generator, labels: NDArray, num_edges: int, *, exponent: float = 2.2, inside: float = 0.75
) -> NDArray[np.int64]:
    """Both directions of num_edges distinct undirected edges, int64 [2, 2*num_edges], sorted by destination."""
    num_vertices = len(labels)
    weight = (np.arange(num_vertices) + 0.01 * num_vertices) ** (-1 / (exponent - 1))
    by_class = np.argsort(labels, kind="stable")
    reach = np.concatenate([[0.0], np.cumsum(rng.permutation(weight))])  # of vertex by_class[i]: reach[i]..reach[i+1]
    starts = np.searchsorted(labels[by_class], np.arange(labels.max() + 2))
    keys = np.empty(0, np.int64)
    while len(keys) < num_edges:
        count = int(1.5 * (num_edges - len(keys))) + 64
        u = _pick(rng, reach, np.zeros(count), np.full(count, reach[-1]))
        own = labels[by_class[u]]
        stays = rng.random(count) < inside
        low = np.where(stays, reach[starts[own]], 0.0)
        high = np.where(stays, reach[starts[own + 1]], reach[-1])
        u, v = by_class[u], by_class[_pick(rng, reach, low, high)]
        new = (np.minimum(u, v) * num_vertices + np.maximum(u, v))[u != v]
        keys = _distinct(np.concatenate([keys, new]))
    keys = rng.permutation(keys)[:num_edges]
    u, v = keys // num_vertices, keys % num_vertices
    return both_directions(u, v, num_vertices)


def both_directions(u: NDArray, v: NDArray, num_vertices: int) -> NDArray[np.int64]:
    """The edges and their reverses as PyG's edge_index [2, E], sorted by destination, then source."""
    key = np.sort(np.concatenate([v * num_vertices + u, u * num_vertices + v]))
    return np.stack([key % num_vertices, key // num_vertices])


def _distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    keys = np.sort(keys)  # not np.unique: its hash table takes ten times as long here
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])]


def _pick(rng: np.random.Generator, reach: NDArray, low: NDArray, high: NDArray) -> NDArray[np.int64]:
    """Positions drawn in proportion to weight, each between its own low and high."""
    drawn = np.searchsorted(reach, low + (high - low) * rng.random(len(low)), side="right") - 1
    return np.minimum(drawn, len(reach) - 2)


def read_plain(path: Path) -> Arrays:
    """The arrays of a plain `.npz` graph, features made dense and row-normalised as the literature does."""
    with np.load(path) as file:
        u, v = file["edges"].astype(np.int64)
        num_vertices = int(file["num_nodes"])
        rows, columns = (int(n) for n in file["feat_shape"])
        x = np.zeros((rows, columns), np.float32)
        row = np.repeat(np.arange(rows), np.diff(file["feat_indptr"]))
        x[row, file["feat_indices"]] = file["feat_data"]
        masks = {name: np.isin(np.arange(num_vertices), file[f"{name}_idx"]) for name in ("train", "val", "test")}
        labels = file["labels"].astype(np.int64)
    x /= np.maximum(x.sum(1, keepdims=True), 1e-12)
    return {"edge_index": both_directions(u, v, num_vertices), "x": x, "y": labels, **masks}
