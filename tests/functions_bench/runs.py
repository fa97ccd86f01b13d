"""The models and graphs of the bench: three models, Pubmed and a small graph as wide, so that they share programs."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dorylus

FOLDER = Path(__file__).parents[2].parent / "shared" / "data" / "planetoid"
NUM_FEATURES, NUM_CLASSES = 500, 3  # Pubmed's
MODELS = ("gcn", "gat", "a user's edge layer")

needs_pubmed = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the folder of real graphs, {FOLDER}, is absent")


class Attentive(dorylus.Layer):
    """A user's layer with work on edges: messages weighed by a gate over both ends."""

    def __init__(self, in_columns: int, out_columns: int, **finish: Any) -> None:
        super().__init__(in_columns, out_columns, **finish)
        self.lin = nn.Linear(in_columns, out_columns)
        self.match = nn.Linear(out_columns, 1)

    def prepare(self, x: Tensor) -> Tensor:
        made: Tensor = self.lin(x)
        return made

    def apply_edge(self, source: Tensor, destination: Tensor, weight: Tensor) -> Tensor:
        return weight * source * torch.sigmoid(self.match(torch.tanh(source + destination)))


def model(name: str) -> Any:
    """A model by its name, its weights the same each time."""
    if name == "gcn":
        return dorylus.gcn(hidden=16, dropout=0.5)
    if name == "gat":
        return dorylus.gat(hidden=8, heads=4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        first = Attentive(NUM_FEATURES, 8, activation="relu", dropout=0.3)
        return dorylus.Program([first, Attentive(8, NUM_CLASSES)])


@cache
def pubmed() -> dorylus.Graph:
    """The real graph."""
    return dorylus.load("pubmed", root=FOLDER, download=False)


@cache
def small() -> dorylus.Graph:
    """Few vertices, with as many features and classes as Pubmed's."""
    return dorylus.communities(300, num_classes=NUM_CLASSES, num_features=NUM_FEATURES, seed=1)


def weights_apart(result: Any, other: Any) -> float:
    """The biggest difference between two weights of the models of two runs."""
    ours, theirs = result.model.state_dict(), other.model.state_dict()
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in theirs)
