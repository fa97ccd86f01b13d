import pytest
import torch
from torch import nn

import dorylus
from dorylus.pipeline import Kind, Need, Scope
from dorylus.saga import Savings, lower
from dorylus.saga.stages import Gather, Loss
from dorylus.saga.table import steps_of


def steps(recipe, *, backward=True, widths=(40, 4)):
    program = recipe if isinstance(recipe, dorylus.Program) else recipe.build(*widths)
    return steps_of(lower(program, sparse_features=False, training=backward, savings=Savings()), backward=backward)


def kinds(found):
    return [str(step.kind) for step in found.table.steps]


def test_an_epoch_of_a_convolution_has_these_steps():
    found = steps(dorylus.gcn(hidden=16, dropout=0.5))
    forward = ["AV", "SC", "GA", "AV", "AV", "SC", "GA", "AV+loss+∇AV"]
    backward = ["∇SC", "∇GA", "∇AV", "∇AV", "∇SC", "∇GA", "∇AV", "WU"]
    assert kinds(found) == forward + backward


def test_a_gather_made_once_is_no_step():
    assert kinds(steps(dorylus.gcn(dropout=0.0), backward=False)) == ["AV", "SC", "GA", "AV"]


def test_features_that_need_no_gradient_have_no_gradient_gather():
    found = steps(dorylus.gcn(hidden=16, dropout=0.5), widths=(20, 4))
    assert kinds(found).count("GA") == 2
    assert kinds(found).count("∇GA") == 1


def test_a_gather_waits_for_the_scatter_of_its_own_and_its_sources_intervals():
    found = steps(dorylus.gcn(hidden=16, dropout=0.5))
    assert set(found.table.steps[2].needs) == {Need(1, Scope.OWN), Need(1, Scope.SOURCES)}


def test_a_gradient_gather_waits_for_the_readers():
    found = steps(dorylus.gcn(hidden=16, dropout=0.5))
    scatter = kinds(found).index("∇SC")
    assert set(found.table.steps[scatter + 1].needs) == {Need(scatter, Scope.READERS), Need(scatter, Scope.OWN)}


def test_the_weight_update_of_an_interval_waits_only_for_its_own_weight_gradients():
    found = steps(dorylus.gcn(hidden=16, dropout=0.5))
    dense = {k for k, step in enumerate(found.table.steps) if step.kind in (Kind.LOSS, Kind.GRAD_APPLY_VERTEX)}
    assert found.table.steps[-1].kind is Kind.WEIGHT_UPDATE
    assert set(found.table.steps[-1].needs) == {Need(step, Scope.OWN) for step in dense}


class Gate(dorylus.Layer):
    def __init__(self, in_columns, out_columns):
        super().__init__(in_columns, out_columns)
        self.gate = nn.Linear(2 * in_columns + 1, out_columns)

    def apply_edge(self, source, destination, weight):
        return self.gate(torch.cat([source, destination, weight], 1))


def test_edge_cotangents_are_added_one_interval_after_the_other():
    found = steps(dorylus.Program([Gate(3, 3), Gate(3, 2)]))
    scatter = kinds(found).index("∇SC")
    assert kinds(found).count("∇SC") == 1  # the features need no gradient
    assert Need(scatter, Scope.PREVIOUS) in found.table.steps[scatter].needs
    assert kinds(found)[scatter - 1] == "∇AE"


def test_every_matrix_that_is_read_names_its_readers():
    found = steps(dorylus.sage(hidden=8, dropout=0.5))
    for index, stage in enumerate(found.stages):
        if isinstance(stage, Loss) or (isinstance(stage, Gather) and found.table.steps[index].kind is Kind.GATHER):
            assert all(index in found.readers[slot] for slot in stage.inputs)


def test_only_gradients_that_need_values_keep_them():
    summed, maximum = (steps(dorylus.sage(hidden=8, dropout=0.5, aggregator=a)) for a in ("sum", "max"))
    for found, expected in ((summed, False), (maximum, True)):
        back = [k for k, step in enumerate(found.table.steps) if step.kind is Kind.GRAD_GATHER]
        assert back
        for k in back:
            assert all((k in found.readers[slot]) is expected for slot in found.stages[k].inputs)


@pytest.mark.parametrize(
    "recipe", [dorylus.sage(hidden=8, dropout=0.5, aggregator="max"), dorylus.gat(hidden=4)], ids=str
)
def test_gathered_rows_are_read_by_the_gradient_scatter_and_not_by_the_gradient_gather(recipe):
    found = steps(recipe)
    gathered = {stage.output: k for k, stage in enumerate(found.stages) if isinstance(stage, Gather)}
    for k, (step, stage) in enumerate(zip(found.table.steps, found.stages, strict=True)):
        if step.kind is Kind.GRAD_SCATTER:
            assert k in found.readers[stage.output]
        if step.kind is Kind.GRAD_GATHER:
            assert gathered[stage.output] == k
            assert max(found.readers[stage.output]) < k
