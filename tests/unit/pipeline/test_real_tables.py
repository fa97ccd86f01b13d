"""The tables that real programs become, through the same scheduler."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_tables import World, awaited, cells_of, relations
from torch import Tensor, nn

import dorylus
from dorylus.pipeline import SCHEDULES, Kind, Scheduler
from dorylus.saga import Savings, lower
from dorylus.saga.table import steps_of


class Edgy(dorylus.Layer):
    """A layer with an ApplyEdge."""

    def __init__(self, in_columns: int, out_columns: int) -> None:
        super().__init__(in_columns, out_columns, dropout=0.5)
        self.lin = nn.Linear(2 * in_columns + 1, out_columns)

    def apply_edge(self, source: Tensor, destination: Tensor, weight: Tensor) -> Tensor:
        import torch

        return self.lin(torch.cat([source, destination, weight], 1))


PROGRAMS = {
    "gcn": dorylus.gcn(num_layers=3).build(9, 4),
    "gcn without dropout": dorylus.gcn(dropout=0.0).build(9, 4),
    "sage max": dorylus.sage(aggregator="max", residual=True).build(9, 4),
    "gin": dorylus.gin(num_layers=3).build(9, 4),
    "gat": dorylus.gat(num_layers=3, residual=True).build(9, 4),
    "edges": dorylus.Program([Edgy(9, 5), Edgy(5, 4)]),
}
TABLES = {
    (name, backward): steps_of(
        lower(program, sparse_features=False, training=backward, savings=Savings()), backward=backward
    ).table
    for name, program in PROGRAMS.items()
    for backward in (True, False)
}


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(TABLES)),
    relations(max_intervals=6),
    st.sampled_from(sorted(SCHEDULES)),
    st.integers(0, 2**32),
)
def test_every_program_runs_to_its_end_in_any_order_of_events(which, reads, mode, seed):
    table = TABLES[which]
    world = World(Scheduler(SCHEDULES[mode](table), reads))
    world.permit(1)
    world.run(random.Random(seed).choice)
    assert world.epochs_over == [0, 1]
    assert len(world.started()) == 2 * len(cells_of(table, reads))
    for task in world.started():
        done = {(t.step, t.interval) for t in world.finished_before_start_of(task) if t.epoch == task.epoch}
        assert awaited(table, reads, (task.step, task.interval)) <= done


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_training_epoch_ends_in_one_weight_update(name):
    kinds = [step.kind for step in TABLES[name, True].steps]
    assert kinds[-1] is Kind.WEIGHT_UPDATE
    assert kinds.count(Kind.WEIGHT_UPDATE) == kinds.count(Kind.LOSS) == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_forward_pass_has_no_loss_and_no_gradient(name):
    forward = {Kind.GATHER, Kind.APPLY_VERTEX, Kind.SCATTER, Kind.APPLY_EDGE}
    assert {step.kind for step in TABLES[name, False].steps} <= forward


@pytest.mark.parametrize("name", PROGRAMS)
def test_phases_never_go_back(name):
    phases = [step.phase for step in TABLES[name, True].steps]
    assert phases == sorted(phases)
