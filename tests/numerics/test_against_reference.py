"""With dropout, a run cut into intervals is the run of the whole graph in one plain PyTorch process."""

from functools import cache

import pytest
from agreement import assert_same_run
from programs import program
from small_graphs import sample

import dorylus
from dorylus.saga.reference import train_reference

SETTINGS = {"epochs": 20, "lr": 0.01, "weight_decay": 5e-4, "seed": 11}


def dropping(model: str, num_layers: int, **options: object) -> dorylus.Program:
    """A program that drops half of its entries."""
    return program(model, num_layers, **({"dropout": 0.5} | options))


@cache
def reference(model: str, num_layers: int, directed: bool) -> object:
    return train_reference(sample(directed=directed).graph, dropping(model, num_layers), **SETTINGS)


@pytest.mark.parametrize("directed", [False, True], ids=["symmetric", "directed"])
@pytest.mark.parametrize("intervals", [1, 3, pytest.param(17, marks=pytest.mark.soak)])
@pytest.mark.parametrize("num_layers", [pytest.param(2, marks=pytest.mark.soak), 3])
@pytest.mark.parametrize("model", ["gcn", "gat", "sage", "gin"])
def test_losses_and_logits_are_those_of_the_reference(
    model: str, num_layers: int, intervals: int, directed: bool
) -> None:
    graph = sample(directed=directed).graph
    result = dorylus.train(graph, dropping(model, num_layers), intervals=intervals, threads=2, **SETTINGS)
    assert_same_run(result.losses, result.predict("logits"), reference(model, num_layers, directed))


@pytest.mark.parametrize("extra", ["residual", "layer_norm"])
@pytest.mark.parametrize("model", ["gcn", "gat", "sage", "gin"])
def test_the_finish_of_a_layer_is_that_of_the_reference(model: str, extra: str) -> None:
    graph = sample(directed=True).graph
    expected = train_reference(graph, dropping(model, 3, **{extra: True}), **SETTINGS)
    result = dorylus.train(graph, dropping(model, 3, **{extra: True}), intervals=3, threads=2, **SETTINGS)
    assert_same_run(result.losses, result.predict("logits"), expected)


def test_dropout_changes_the_run() -> None:
    graph = sample(directed=False).graph
    dropped = train_reference(graph, dropping("gcn", 2), **SETTINGS)
    kept = train_reference(graph, program("gcn"), **SETTINGS)
    assert abs(dropped.losses[-1] - kept.losses[-1]) > 0.01


def test_another_seed_draws_another_dropout() -> None:
    graph = sample(directed=False).graph
    losses = {
        seed: dorylus.train(graph, dropping("gcn", 2), **(SETTINGS | {"seed": seed, "epochs": 2})).losses
        for seed in (1, 2)
    }
    assert losses[1] != losses[2]
