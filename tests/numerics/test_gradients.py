"""Gradients are the slope of the loss: float64 finite differences against the engine's and the reference's."""

from collections.abc import Callable

import pytest
import torch
from programs import program
from pyg_oracle import ACTIVATION, Stack, inputs, loss_of
from small_graphs import sample
from torch import Tensor

import dorylus
from dorylus.saga import reference

MODELS = [
    ("gcn", {}),
    ("gat", {"output_heads": 2}),
    ("sage", {}),
    ("sage", {"aggregator": "max"}),
    ("gin", {"train_eps": True}),
]
STEP = 1e-6
RATE = 64.0  # far above the rounding of a weight, so that a small gradient can be read off a single step


def gradients_of_the_engine(made: dorylus.Program, directed: bool) -> dict[str, Tensor]:
    """What one step of plain gradient descent took away from every weight, divided by the rate."""
    before = {name: weight.detach().double().clone() for name, weight in made.named_parameters()}
    result = dorylus.train(
        sample(directed=directed).graph, made, epochs=1, optimizer="sgd", lr=RATE, weight_decay=0.0, intervals=3
    )
    after = result.model.state_dict()
    return {name: (before[name] - after[name].double()) / RATE for name in before}


def slope(loss: Callable[[], Tensor], weight: Tensor, along: Tensor) -> float:
    """Central difference of a float64 loss when weight moves along a direction."""
    losses = []
    with torch.no_grad():
        start = weight.clone()
        for sign in (1, -1):
            weight.copy_(start + sign * STEP * along)
            losses.append(loss().item())
        weight.copy_(start)
    return (losses[0] - losses[1]) / (2 * STEP)


def assert_slope(loss: Callable[[], Tensor], weight: Tensor, gradient: Tensor, name: str, *, relative: float) -> None:
    """Along a random direction, the gradient agrees with the finite difference."""
    along = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    allowed = relative * float(gradient.norm() * along.norm()) + 1e-9  # the difference quotient's own rounding
    assert abs(float((gradient * along).sum()) - slope(loss, weight, along)) <= allowed, name


@pytest.mark.parametrize("directed", [False, True], ids=["symmetric", "directed"])
@pytest.mark.parametrize(("model", "options"), MODELS, ids=str)
def test_the_gradient_of_the_engine_is_the_slope_of_the_loss_of_pyg(
    model: str, options: dict[str, object], directed: bool
) -> None:
    made, on = program(model, 3, **options), sample(directed=directed)
    stack = Stack([conv.double() for conv in made.to_pyg()], ACTIVATION[model])
    given = inputs(on, torch.float64)
    by_layer = [dict(conv.named_parameters()) for conv in stack.convs]
    for name, gradient in gradients_of_the_engine(made, directed).items():
        _, layer, rest = name.split(".", 2)  # layers.<index>.<name as in PyG>
        assert_slope(lambda: loss_of(stack, on, given), by_layer[int(layer)][rest], gradient, name, relative=1e-5)


@pytest.mark.parametrize(("model", "options"), MODELS, ids=str)
def test_the_gradient_of_the_reference_is_the_slope_of_its_loss(model: str, options: dict[str, object]) -> None:
    made = program(model, 2, dropout=0.5, residual=True, layer_norm=True, **options).double()
    for weight in made.parameters():  # away from zero, where rows that dropout emptied sit on the activation's kink
        torch.nn.init.normal_(weight, std=0.3, generator=torch.Generator().manual_seed(1))
    graph = sample(directed=True).graph
    reference.loss_of(made, graph, drop=(1, 2)).backward()
    for name, weight in made.named_parameters():
        assert weight.grad is not None, name
        assert_slope(lambda: reference.loss_of(made, graph, drop=(1, 2)), weight, weight.grad, name, relative=1e-7)
