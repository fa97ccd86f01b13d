"""The tables that real programs become, through the same properties."""

import pytest
import torch
from clusters import cases
from hypothesis import given
from hypothesis import strategies as st
from pipeline_properties import (
    PROPERTIES,
    every_task_runs_exactly_once,
    exact_epochs_read_values_of_their_own,
    nothing_hangs,
)
from torch import Tensor, nn

import dorylus
from dorylus.pipeline import Kind, Scheduler, Scope
from dorylus.saga import Savings, lower
from dorylus.saga.columns import in_blocks
from dorylus.saga.table import steps_of
from dorylus.servers.parameter.stash import Stash
from draws import draws


class Edgy(dorylus.Layer):
    """A layer with an ApplyEdge."""

    def __init__(self, in_columns: int, out_columns: int) -> None:
        super().__init__(in_columns, out_columns, dropout=0.5)
        self.lin = nn.Linear(2 * in_columns + 1, out_columns)

    def apply_edge(self, source: Tensor, destination: Tensor, weight: Tensor) -> Tensor:
        return self.lin(torch.cat([source, destination, weight], 1))


PROGRAMS = {
    "gcn": dorylus.gcn(num_layers=3).build(9, 4),
    "gcn without dropout": dorylus.gcn(dropout=0.0).build(9, 4),
    "sage max": dorylus.sage(aggregator="max", residual=True).build(9, 4),
    "gin": dorylus.gin(num_layers=3).build(9, 4),
    "gat": dorylus.gat(num_layers=3, residual=True).build(9, 4),
    "edges": dorylus.Program([Edgy(9, 5), Edgy(5, 4)]),
}


def table_of(name: str, backward: bool):
    plan = lower(PROGRAMS[name], sparse_features=False, training=backward, savings=Savings())
    return steps_of(plan, backward=backward).table


def in_blocks_of(recipe, backward: bool):
    """The table of a program whose gathers are cut into blocks of columns."""
    plan = lower(recipe.build(40, 24), sparse_features=False, training=backward, savings=Savings())
    return steps_of(in_blocks(plan, 3), backward=backward).table


RECIPES_IN_BLOCKS = {
    "gcn": dorylus.gcn(hidden=[40, 36]),
    "sage max": dorylus.sage(hidden=40, aggregator="max", residual=True),
    "gin": dorylus.gin(hidden=40),
}
TRAINING = {name: table_of(name, backward=True) for name in PROGRAMS}
FORWARD = {name: table_of(name, backward=False) for name in PROGRAMS}


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
@draws(6)
@given(case=cases(tables=st.sampled_from(list(TRAINING.values()))))
def test_of_training(holds, case):
    holds(case, Scheduler, Stash)


@pytest.mark.parametrize(
    "holds",
    [every_task_runs_exactly_once, nothing_hangs, exact_epochs_read_values_of_their_own],
    ids=lambda holds: holds.__name__,
)
@draws(5)
@given(case=cases(tables=st.sampled_from(list(FORWARD.values())), staleness=st.none()))
def test_of_forward_passes(holds, case):
    holds(case, Scheduler, Stash)


BLOCKS = {name: in_blocks_of(recipe, backward=True) for name, recipe in RECIPES_IN_BLOCKS.items()}
FORWARD_BLOCKS = {name: in_blocks_of(recipe, backward=False) for name, recipe in RECIPES_IN_BLOCKS.items()}
EXACT = [every_task_runs_exactly_once, nothing_hangs, exact_epochs_read_values_of_their_own]


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
@draws(4)
@given(case=cases(tables=st.sampled_from(list(BLOCKS.values())), staleness=st.none()))
def test_of_training_in_blocks_of_columns(holds, case):
    holds(case, Scheduler, Stash)


@pytest.mark.parametrize("holds", EXACT, ids=lambda holds: holds.__name__)
@draws(4)
@given(case=cases(tables=st.sampled_from(list(FORWARD_BLOCKS.values())), staleness=st.none()))
def test_of_forward_passes_in_blocks_of_columns(holds, case):
    holds(case, Scheduler, Stash)


@pytest.mark.parametrize("name", RECIPES_IN_BLOCKS)
def test_only_blocks_of_columns_wait_for_every_interval(name):
    kinds = {step.kind for step in BLOCKS[name].steps for need in step.needs if need.scope is Scope.EVERY}
    assert kinds == {Kind.GATHER, Kind.GRAD_GATHER}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_interval_ends_its_epoch_with_its_part_of_the_weight_update(name):
    steps = TRAINING[name].steps
    kinds = [step.kind for step in steps]
    assert kinds[-1] is Kind.WEIGHT_UPDATE
    assert kinds.count(Kind.WEIGHT_UPDATE) == kinds.count(Kind.LOSS) == 1
    assert steps[-1].needs == steps[-1].own_needs
    assert steps[-1].needs


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_step_of_a_program_waits_for_every_interval(name):
    assert not [need for step in TRAINING[name].steps for need in step.needs if need.scope is Scope.EVERY]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_forward_pass_has_no_loss_and_no_gradient(name):
    forward = {Kind.GATHER, Kind.APPLY_VERTEX, Kind.SCATTER, Kind.APPLY_EDGE}
    assert {step.kind for step in FORWARD[name].steps} <= forward


@pytest.mark.parametrize("name", PROGRAMS)
def test_phases_never_go_back(name):
    phases = [step.phase for step in TRAINING[name].steps]
    assert phases == sorted(phases)
