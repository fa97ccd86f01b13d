"""Programs of mixed layers, with residuals, equal the reference: their rows and cotangents pass through many layers."""

import random
from itertools import pairwise

import pytest
import torch
from agreement import assert_same_run
from torch import nn

import dorylus
from dorylus import GAT, GCN, GIN, SAGE
from dorylus.saga.reference import train_reference


class Passes(dorylus.Layer):
    """A user's layer whose bodies hand their arguments through, so that outputs and gradients are views of others."""

    reduce = "mean"

    def __init__(self, in_columns, out_columns, **finish):
        super().__init__(in_columns, out_columns, **finish)
        self.lin = nn.Linear(in_columns, out_columns)

    def prepare(self, x):
        return self.lin(x)

    def apply_edge(self, source, destination, weight):
        return source + destination

    def apply_vertex(self, own, gathered):
        return gathered


def a_program(seed, dropout):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    makers = [
        lambda *size, **finish: GCN(*size, **finish),
        lambda *size, **finish: GAT(*size, heads=2, **finish),
        lambda *size, **finish: SAGE(*size, aggregator=rng.choice(["mean", "sum"]), **finish),
        lambda *size, **finish: GIN(*size, **finish),
        lambda *size, **finish: Passes(*size, **finish),
    ]
    widths = [6] + [rng.choice([4, 6]) for _ in range(rng.randint(1, 3))] + [4]
    layers = [
        rng.choice(makers)(wide, out, residual=rng.random() < 0.7, dropout=rng.choice([0.0, dropout]))
        for wide, out in pairwise(widths)
    ]
    return dorylus.Program(layers)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(8))
def test_a_mixed_program_with_residuals_is_trained_as_the_reference_does(seed, dropout):
    graph = dorylus.communities(num_vertices=120, average_degree=6, num_classes=4, num_features=6, seed=seed)
    settings = {"epochs": 4, "lr": 0.01, "optimizer": torch.optim.SGD}
    program = a_program(seed, dropout)
    expected = train_reference(graph, program, **settings)
    for intervals in (1, 5):
        result = dorylus.train(graph, program, intervals=intervals, threads=2, **settings)
        assert_same_run(result.losses, result.predict("logits"), expected)


def test_a_layer_may_leave_an_interval_without_edges():
    graph = dorylus.Graph.from_edges(
        [0, 1], [1, 2], 8, features=torch.eye(8).numpy(), labels=[0, 1] * 4, train_mask=[True] * 8
    )
    torch.manual_seed(0)
    program = dorylus.Program([Passes(8, 4), Passes(4, 2)])
    result = dorylus.train(graph, program, epochs=3, intervals=8)
    assert_same_run(result.losses, result.predict("logits"), train_reference(graph, program, epochs=3))


def test_a_gradient_that_is_only_handed_through_survives_its_matrix():
    # The residual's gradient is the cotangent itself, a view of a matrix that is given back before it is read.
    graph = dorylus.communities(num_vertices=200, average_degree=8, num_classes=4, num_features=6)
    torch.manual_seed(0)
    program = dorylus.Program([GAT(6, 4), GAT(4, 4, heads=2, residual=True), GCN(4, 4)])
    settings = {"epochs": 4, "lr": 0.05, "optimizer": torch.optim.SGD}
    result = dorylus.train(graph, program, **settings)
    assert_same_run(result.losses, result.predict("logits"), train_reference(graph, program, **settings))
