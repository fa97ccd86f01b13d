import pytest
import torch
from torch import nn

from dorylus.servers.parameter.parameter_server import momentum_of, predict_weights


def weights(**values):
    return {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}


@pytest.mark.parametrize(("steps", "expected"), [(1, 2.5), (2, 2.75), (3, 2.875)])
def test_each_further_step_repeats_less_of_the_last_one(steps, expected):
    assert predict_weights(weights(w=1.0), weights(w=2.0), {"w": 0.5}, steps)["w"].item() == expected


def test_a_prediction_is_a_leaf_that_leaves_the_version_alone():
    previous, latest = weights(w=1.0), weights(w=2.0)
    prediction = predict_weights(previous, latest, {"w": 0.5}, 1)["w"]
    prediction.backward()
    assert prediction.is_leaf
    assert (latest["w"].item(), latest["w"].grad, previous["w"].grad) == (2.0, None, None)


def test_parameters_without_a_step_or_momentum_are_left_out():
    latest = weights(stepped=2.0, plain=2.0, other=2.0)
    same = {"frozen": torch.zeros(1)}
    predicted = predict_weights(
        weights(stepped=1.0, plain=1.0, other=1.0) | same,
        latest | same,
        {"stepped": 0.9, "plain": 0.0, "frozen": 0.9},
        1,
    )
    assert predicted.keys() == {"stepped"}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), 0.0),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8), 0.8),
        (lambda p: torch.optim.Adam(p), 0.9),
        (lambda p: torch.optim.AdamW(p, betas=(0.7, 0.99)), 0.7),
        (lambda p: torch.optim.RMSprop(p), 0.0),
        (lambda p: torch.optim.Adagrad(p), 0.0),
    ],
)
def test_momentum_is_found_in_torchs_optimisers(make, expected):
    assert momentum_of(make([nn.Parameter(torch.zeros(1))]).param_groups[0]) == expected
