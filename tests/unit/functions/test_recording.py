"""Records are equal for tasks that compute the same, and differ where a part of their programs differs."""

import pytest
import torch
import torch.nn.functional as f
from small_calls import Runs, call_of
from torch import nn

from dorylus.functions.export import record
from dorylus.functions.pure import Pure
from dorylus.saga.dense import Mode


def of(function, mode=Mode.FORWARD, **options):
    return record(Pure(call_of(Runs(function), [6], mode, **options)))


@pytest.mark.parametrize("mode", list(Mode))
def test_modules_that_compute_the_same_have_one_record(mode):
    torch.manual_seed(0)
    first = of(lambda module, y: torch.tanh(y), mode)
    torch.manual_seed(1)
    assert first == of(lambda module, y: y.tanh(), mode)
    assert first == of(lambda module, y: torch.tanh(y), mode, num_rows=40)


def bent(amount):
    return lambda module, y: f.leaky_relu(y, amount)


def scaled(constant):
    held = torch.tensor(constant)
    return lambda module, y: y * held


VARIANTS = {
    "another operation": (bent(0.1), lambda module, y: torch.relu(y)),
    "another number": (bent(0.1), bent(0.2)),
    "another constant": (scaled([1.0, 2.0, 3.0, 4.0]), scaled([1.0, 2.0, 3.0, 5.0])),
    "another order": (lambda module, y: y[:, :2] - y[:, 2:], lambda module, y: y[:, 2:] - y[:, :2]),
    "another order of outputs": (lambda module, y: (y, -y), lambda module, y: (-y, y)),
    "a number of rows for a number": (lambda module, y: y / 3, lambda module, y: y / len(y)),
    "a value for a number": (lambda module, y: y * 2.0, lambda module, y: y * (y.detach().sum() * 0 + 2).item()),
}


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_differs_has_another_record(variant, mode):
    one, other = VARIANTS[variant]
    assert of(one, mode) != of(other, mode)


def test_another_width_has_another_record():
    def of_width(width):
        return record(Pure(call_of(nn.Linear(width, 3), [width])))

    assert of_width(4) != of_width(5)


def test_another_name_of_a_weight_has_another_record():
    inside = nn.Sequential(nn.Linear(3, 3))
    assert record(Pure(call_of(inside, [3]))) != record(Pure(call_of(inside[0], [3])))


def test_other_requested_gradients_have_another_record():
    both = {"needs_grad": (True,)}, {"needs_grad": (False,)}
    assert len({of(bent(0.1), Mode.GRADIENT, **options) for options in both}) == 2


def test_what_autograd_keeps_is_no_constant():
    """Its values differ with the weights: a record that held them would never be found again."""
    torch.manual_seed(0)
    first = of(lambda module, y: torch.sigmoid(y) * torch.exp(y), Mode.GRADIENT)
    torch.manual_seed(5)
    assert first == of(lambda module, y: torch.sigmoid(y) * torch.exp(y), Mode.GRADIENT)
