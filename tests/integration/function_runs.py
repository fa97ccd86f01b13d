"""Small runs whose dense tasks travel: three kinds of models, and what they give on this process's own threads."""

from functools import cache

import torch
from torch import Tensor, nn

import dorylus

SETTINGS = {"epochs": 3, "intervals": 3, "threads": 2, "lr": 0.02, "seed": 5, "deadline_s": 60}
TOLERANCE = 1e-5
NUM_FEATURES, NUM_CLASSES = 12, 3


class GatedEdges(dorylus.Layer):
    """A layer of a user's: messages scaled by a gate that looks at both ends of the edge and at its weight."""

    def __init__(self, in_columns: int, out_columns: int, **finish: object) -> None:
        super().__init__(in_columns, out_columns, **finish)
        self.lin = nn.Linear(in_columns, out_columns)
        self.gate = nn.Linear(2 * out_columns + 1, 1)

    def prepare(self, x: Tensor) -> Tensor:
        return self.lin(x)

    def apply_edge(self, source: Tensor, destination: Tensor, weight: Tensor) -> Tensor:
        return source * torch.sigmoid(self.gate(torch.cat([source, destination, weight], 1)))


def model(name: str) -> object:
    """A model by its name, its weights the same each time."""
    if name == "gcn":
        return dorylus.gcn(hidden=8)
    if name == "gat":
        return dorylus.gat(hidden=4, heads=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        first = GatedEdges(NUM_FEATURES, 6, activation="relu", dropout=0.3)
        return dorylus.Program([first, GatedEdges(6, NUM_CLASSES)])


@cache
def graph() -> dorylus.Graph:
    """Communities of vertices, few enough that a run takes a moment."""
    return dorylus.communities(300, num_classes=NUM_CLASSES, num_features=NUM_FEATURES, seed=1)


@cache
def losses_here(name: str) -> list[float]:
    """The losses of a run on threads."""
    return dorylus.train(graph(), model(name), **SETTINGS).losses


def losses_on(pool: object, name: str, **settings: object) -> list[float]:
    """The losses of the same run on a pool."""
    return dorylus.train(graph(), model(name), pool=pool, rematerialize=True, **SETTINGS | settings).losses
