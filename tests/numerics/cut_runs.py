"""Runs cut over many servers: their graphs, their programs, and the expected losses and weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import dorylus
from dorylus.partition import Partitioning, save_shards
from dorylus.saga.reference import ReferenceRun, train_reference

NUM_VERTICES, NUM_FEATURES, NUM_CLASSES = 420, 7, 4
EDGE_KINDS = ("sum", "mean", "max", "softmax")
MODELS = ("gcn", "gat", "sage", "sage max", "gin", *(f"edges {reduce}" for reduce in EDGE_KINDS), "two-sided", "mixed")
# Adam divides a gradient by its own size: where a true gradient is zero, it takes steps of the rounding. A score that
# is shifted alike for all in-edges of a vertex leaves a softmax as it is, so such weights are trained by SGD alone.
ADAM_AMPLIFIES_ROUNDING = ("edges softmax",)


@cache
def cut_graph(*, directed: bool, weighted: bool, few: bool, sparse: bool = False) -> dorylus.Graph:
    """A random graph with hubs, vertices without edges and self loops, of which few or many vertices are trained on.

    Few are so few, and edges so sparse, that most rows reach no trained vertex: row pruning has something to prune.
    """
    rng = np.random.default_rng(3)
    last = NUM_VERTICES - 12
    ends = (last * rng.random((2, 500 if few else 1500)) ** np.array([[1.0], [1.6]])).astype(np.int64)
    looped = np.arange(0, last, 9)
    edges = np.concatenate([ends, np.stack([looped, looped])], axis=1)
    source, destination = np.unique(edges if directed else np.sort(edges, axis=0), axis=1)
    labels = rng.integers(0, NUM_CLASSES, NUM_VERTICES)
    labels[:NUM_CLASSES] = np.arange(NUM_CLASSES)
    trained = rng.permutation(NUM_VERTICES)[: 20 if few else 200]
    mask = np.isin(np.arange(NUM_VERTICES), trained)
    features = rng.standard_normal((NUM_VERTICES, NUM_FEATURES), dtype=np.float32)
    if sparse:
        features[rng.random(features.shape) < 0.7] = 0
    return dorylus.Graph.from_edges(
        source,
        destination,
        NUM_VERTICES,
        undirected=not directed,
        edge_weight=rng.uniform(0.5, 1.5, len(source)).astype(np.float32) if weighted else None,
        features=dorylus.SparseFeatures.from_dense(features) if sparse else features,
        labels=labels,
        train_mask=mask,
        val_mask=~mask,
    )


class GatedEdges(dorylus.Layer):
    """A user's layer: messages scaled by a gate that looks at both ends of the edge and at its weight."""

    def __init__(self, in_columns: int, out_columns: int, reduce: str, **finish: Any) -> None:
        super().__init__(in_columns, out_columns, **finish)
        self.reduce = reduce
        self.lin = nn.Linear(in_columns, out_columns)
        self.gate = nn.Linear(2 * out_columns + 1, 1)

    def prepare(self, x: Tensor) -> Tensor:
        return self.lin(x)

    def apply_edge(self, source: Tensor, destination: Tensor, weight: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        score = self.gate(torch.cat([source, destination, weight], 1))
        return (source, score) if self.reduce == "softmax" else source * torch.sigmoid(score)


class TwoSided(dorylus.Layer):
    """A user's layer that prepares one row for its readers and another, of another width, for itself."""

    reduce = "mean"

    def __init__(self, in_columns: int, out_columns: int, **finish: Any) -> None:
        super().__init__(in_columns, out_columns, **finish)
        self.key, self.query = nn.Linear(in_columns, 5), nn.Linear(in_columns, 3)
        self.message = nn.Linear(5 + 3, out_columns)

    def prepare(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.key(x), self.query(x)

    def apply_edge(self, source: Tensor, destination: Tensor, weight: Tensor) -> Tensor:
        return weight * torch.tanh(self.message(torch.cat([source, destination], 1)))


def make_program(
    model: str,
    *,
    num_layers: int = 2,
    dropout: float = 0.0,
    residual: bool = False,
    num_features: int = NUM_FEATURES,
    num_classes: int = NUM_CLASSES,
) -> dorylus.Program:
    """A small program, the same weights on every call; GAT's attention coefficients are dropped too."""
    name, _, reduce = model.partition(" ")
    if name in ("edges", "two-sided", "mixed"):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            return _stacked(name, reduce, [num_features, *[6] * (num_layers - 1), num_classes], dropout, residual)
    options: dict[str, Any] = {"hidden": 3, "heads": 2} if name == "gat" else {"hidden": 6}
    options |= {"aggregator": reduce} if reduce else {}
    options |= {"num_layers": num_layers, "dropout": dropout, "residual": residual}
    return getattr(dorylus, name)(**options).build(num_features, num_classes, seed=3)


def _stacked(name: str, reduce: str, widths: list[int], dropout: float, residual: bool) -> dorylus.Program:
    """Layers of one kind, or of a different kind each."""
    kinds: dict[str, Sequence[Callable[..., dorylus.Layer]]] = {
        "edges": [partial(GatedEdges, reduce=reduce)],
        "two-sided": [TwoSided],
        "mixed": [dorylus.GAT, TwoSided, dorylus.SAGE],
    }
    layers = []
    for index, size in enumerate(pairwise(widths)):
        make, last = kinds[name][index % len(kinds[name])], index == len(widths) - 2
        finish = {"activation": None if last else "tanh", "residual": residual and not last}
        layers.append(make(*size, dropout=dropout, **finish))
    return dorylus.Program(layers)


def cut_by_hand(folder: Path, graph: dorylus.Graph, parts: Sequence[int]) -> dict[str, Any]:
    """The settings that give vertex v to server ``parts[v]``; shards are saved in the folder."""
    num_servers = max(parts) + 1
    save_shards(folder, graph, Partitioning(np.array(parts, np.int32), num_servers, "by hand"))
    return {"servers": num_servers, "partition": str(folder)}


OPTIMIZERS: Mapping[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam", "lr": 0.02, "weight_decay": 5e-4},
    "sgd": {"optimizer": "sgd", "lr": 0.2, "weight_decay": 5e-4, "optimizer_options": {"momentum": 0.9}},
}


@dataclass(frozen=True)
class Problem:
    """A training problem: all settings that may change the numbers."""

    model: str
    directed: bool = True
    weighted: bool = False
    few: bool = False
    sparse: bool = False
    dropout: float = 0.0
    num_layers: int = 2
    residual: bool = False
    optimizer: str = "sgd"
    epochs: int = 4
    seed: int = 11

    @property
    def graph(self) -> dorylus.Graph:
        return cut_graph(directed=self.directed, weighted=self.weighted, few=self.few, sparse=self.sparse)

    def program(self) -> dorylus.Program:
        return make_program(self.model, num_layers=self.num_layers, dropout=self.dropout, residual=self.residual)

    @property
    def settings(self) -> dict[str, Any]:
        return {"epochs": self.epochs, "seed": self.seed, "eval_every": 0, **OPTIMIZERS[self.optimizer]}

    def train(self, **cut: Any) -> dorylus.Result:
        """The run, cut over servers by these settings."""
        return dorylus.train(self.graph, self.program(), **{"threads": 2, "deadline_s": 60.0} | self.settings | cut)

    def reference(self) -> ReferenceRun:
        """The same in one plain PyTorch process."""
        return _reference(self)


@cache
def _reference(problem: Problem) -> ReferenceRun:
    chosen = OPTIMIZERS[problem.optimizer]
    rates = {name: chosen[name] for name in ("lr", "weight_decay")}
    return train_reference(
        problem.graph,
        problem.program(),
        epochs=problem.epochs,
        seed=problem.seed,
        optimizer=torch_optimizer(problem.optimizer),
        **rates,
    )


def torch_optimizer(name: str) -> Callable[..., torch.optim.Optimizer]:
    """The optimizers of ``OPTIMIZERS``, made by PyTorch."""
    if name == "adam":
        return torch.optim.Adam
    return lambda parameters, **rates: torch.optim.SGD(parameters, **rates, **OPTIMIZERS[name]["optimizer_options"])


def assert_trained_alike(result: dorylus.Result, expected: ReferenceRun, *, relative: float = 1e-4) -> None:
    """Every epoch's loss agrees, and every weight by the largest entry of its tensor, to a relative tolerance."""
    np.testing.assert_allclose(result.losses, expected.losses, rtol=relative)
    assert_same_weights(result.model.state_dict(), expected.program.state_dict(), relative=relative)


def assert_same_weights(
    weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], *, relative: float = 1e-4
) -> None:
    """Every weight agrees, by the largest entry of its tensor."""
    assert weights.keys() == expected.keys()
    for name, weight in expected.items():
        off = (weights[name] - weight).abs().max().item()
        allowed = relative * weight.abs().max().item()
        assert off <= allowed, f"{name} is off by {off:.3g}, more than {allowed:.3g}"


def assert_same_bits(result: dorylus.Result, other: dorylus.Result) -> None:
    """Losses and weights agree to the last bit."""
    assert result.losses == other.losses
    weights = result.model.state_dict()
    for name, weight in other.model.state_dict().items():
        assert torch.equal(weights[name], weight), name
