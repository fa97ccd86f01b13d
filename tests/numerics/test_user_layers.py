"""A layer written by a user, with a dense ApplyEdge, trains to the reference's numbers however edges are combined."""

import pytest
import torch
from agreement import assert_same_run
from small_graphs import NUM_CLASSES, NUM_FEATURES, sample
from torch import Tensor, nn

import dorylus
from dorylus.saga.reference import train_reference

SETTINGS = {"epochs": 20, "lr": 0.01, "weight_decay": 5e-4, "seed": 11}


class GatedEdges(dorylus.Layer):
    """Messages scaled by a gate that looks at both ends of the edge and at its weight."""

    def __init__(self, in_columns: int, out_columns: int, reduce: str, **finish: object) -> None:
        super().__init__(in_columns, out_columns, **finish)
        self.reduce = reduce
        self.lin = nn.Linear(in_columns, out_columns)
        self.gate = nn.Linear(2 * out_columns + 1, 1)

    def prepare(self, x: Tensor) -> Tensor:
        return self.lin(x)

    def apply_edge(self, source: Tensor, destination: Tensor, weight: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        score = self.gate(torch.cat([source, destination, weight.view(-1, 1)], 1))
        return (source, score) if self.reduce == "softmax" else source * torch.sigmoid(score)


def made(reduce: str) -> dorylus.Program:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first = GatedEdges(NUM_FEATURES, 8, reduce, dropout=0.5, activation="relu")
        return dorylus.Program([first, GatedEdges(8, NUM_CLASSES, reduce, dropout=0.5)])


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "softmax"])
def test_an_edge_layer_trains_to_the_numbers_of_the_reference(reduce: str, weighted: bool) -> None:
    graph = sample(directed=True, weighted=weighted).graph
    expected = train_reference(graph, made(reduce), **SETTINGS)
    result = dorylus.train(graph, made(reduce), intervals=3, threads=2, **SETTINGS)
    assert_same_run(result.losses, result.predict("logits"), expected)
