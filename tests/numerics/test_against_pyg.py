"""Without dropout, a run of ours is PyG's run: same weights in, same losses and logits out."""

from functools import cache

import pytest
from agreement import assert_same_run
from programs import program
from pyg_oracle import ACTIVATION, Curve, Stack, train_pyg
from small_graphs import Sample, sample

import dorylus

SETTINGS = {"lr": 0.01, "weight_decay": 5e-4}
EPOCHS = 20


@cache
def oracle(model: str, num_layers: int, directed: bool) -> Curve:
    return pyg_run(model, program(model, num_layers), sample(directed=directed))


def pyg_run(model: str, made: dorylus.Program, on: Sample) -> Curve:
    return train_pyg(Stack(made.to_pyg(), ACTIVATION[model]), on, epochs=EPOCHS, **SETTINGS)


def our_run(made: dorylus.Program, on: Sample, **settings: object) -> dorylus.Result:
    return dorylus.train(on.graph, made, epochs=EPOCHS, threads=2, **(SETTINGS | settings))


@pytest.mark.parametrize("directed", [False, True], ids=["symmetric", "directed"])
@pytest.mark.parametrize("intervals", [1, 3, pytest.param(17, marks=pytest.mark.soak)])
@pytest.mark.parametrize("num_layers", [pytest.param(2, marks=pytest.mark.soak), 3])
@pytest.mark.parametrize("model", ["gcn", "gat", "sage", "gin"])
def test_losses_and_logits_are_those_of_pyg(model: str, num_layers: int, intervals: int, directed: bool) -> None:
    result = our_run(program(model, num_layers), sample(directed=directed), intervals=intervals)
    assert_same_run(result.losses, result.predict("logits"), oracle(model, num_layers, directed))


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("gat", {"output_heads": 3}),
        ("sage", {"aggregator": "max"}),
        ("sage", {"aggregator": "sum"}),
        ("gin", {"train_eps": True}),
    ],
    ids=["gat with three output heads", "sage max", "sage sum", "gin with trained eps"],
)
def test_variants_of_a_layer_are_those_of_pyg(model: str, options: dict[str, object]) -> None:
    made, on = program(model, 2, **options), sample(directed=True)
    expected = pyg_run(model, made, on)
    result = our_run(made, on, intervals=3)
    assert_same_run(result.losses, result.predict("logits"), expected)


def test_edge_weights_enter_a_gcn_as_in_pyg() -> None:
    made, on = program("gcn", 2), sample(directed=True, weighted=True)
    expected = pyg_run("gcn", made, on)
    result = our_run(made, on, intervals=3)
    assert_same_run(result.losses, result.predict("logits"), expected)


@pytest.mark.parametrize("model", ["gcn", "gat", "sage", "gin"])
def test_weights_that_went_through_pyg_come_back_unchanged(model: str) -> None:
    made = program(model, 2)
    other = program(model, 2, seed=4)
    other.from_pyg(made.to_pyg())
    for name, weight in made.state_dict().items():
        assert weight.equal(other.state_dict()[name]), name
