import pytest
import torch
from torch import nn

import dorylus
from dorylus.saga import Savings, lower
from dorylus.saga.dense import kept_bytes
from dorylus.saga.stages import ApplyVertex, Body, Slot

FLOAT = 4


def stage_of(module, columns, out):
    slots = [Slot(name="x", columns=columns, level=0, layer=0, needs_grad=True)]
    outputs = [Slot(name="y", columns=out, level=0, layer=0, needs_grad=True)]
    return ApplyVertex(Body(module), tuple(slots), tuple(outputs), 0)


class Twice(nn.Module):
    """Two maps with an activation in between."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 10), nn.Linear(10, 3)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Raises(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(6, 3)

    def forward(self, x):
        raise RuntimeError("no such rows")


def test_a_linear_map_keeps_its_output_and_the_rows_it_read_are_not_its_own():
    assert kept_bytes(stage_of(nn.Linear(6, 3), 6, 3)) == FLOAT * 3


def test_an_intermediate_value_is_kept_once():
    assert kept_bytes(stage_of(Twice(), 6, 3)) == FLOAT * (10 + 3)


def test_a_body_that_fails_is_taken_to_keep_its_outputs():
    assert kept_bytes(stage_of(Raises(), 6, 3)) == FLOAT * 3


def test_random_numbers_are_as_they_were_before():
    stage = stage_of(nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)), 6, 3)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    kept_bytes(stage)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("recipe", [dorylus.gcn(hidden=16), dorylus.sage(hidden=16), dorylus.gin(hidden=16)])
def test_every_stage_keeps_at_least_what_it_makes(recipe):
    plan = lower(recipe.build(12, 5), sparse_features=False, training=True, savings=Savings())
    stages = [stage for stage in plan.stages if isinstance(stage, ApplyVertex)]
    assert stages
    for stage in stages:
        assert kept_bytes(stage) >= FLOAT * sum(slot.columns for slot in stage.outputs)
