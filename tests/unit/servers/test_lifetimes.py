"""When a matrix is released: with the last task that reads it, and each matrix of a gather by its own readers."""

import pytest
from small_shards import Messages

import dorylus
from dorylus.pipeline import Kind
from dorylus.saga import Gather, Savings, Slot, lower, steps_of
from dorylus.saga.columns import in_blocks
from dorylus.servers.graph.access_sets import Lifetimes, access_sets, kept_names, last_readers, published_names
from dorylus.servers.graph.pass_context import Extra, Grad, Published

PROGRAMS = {
    "gcn": dorylus.gcn(hidden=[40, 36], dropout=0.5).build(40, 24),
    "sage max": dorylus.sage(hidden=40, aggregator="max", dropout=0.5).build(40, 24),
    "gat": dorylus.gat(hidden=8, heads=2).build(40, 24),
    "edges": dorylus.Program([Messages(40, 36), Messages(36, 24)]),
}


def made(name, blocks=1, *, backward=True):
    plan = lower(PROGRAMS[name], sparse_features=False, training=backward, savings=Savings())
    plan = in_blocks(plan, blocks)
    return plan, steps_of(plan, backward=backward)


class Released:
    """Stands in for a server's matrices; notes what is released."""

    def __init__(self):
        self.names = []

    def release(self, names):
        self.names += names


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_matrix_is_released_before_a_step_that_accesses_it(name, blocks, backward):
    plan, steps = made(name, blocks, backward=backward)
    matrices = Released()
    lifetimes = Lifetimes(steps, 1, matrices, plan.results)
    for number, access in enumerate(access_sets(steps)):
        gone = set(matrices.names)
        assert gone.isdisjoint((*access.reads, *access.wholes))
        lifetimes.finished(number)
    assert len(set(matrices.names)) == len(matrices.names)


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_whatever_a_gather_writes_in_an_epoch_is_released_in_it(name, blocks):
    plan, steps = made(name, blocks)
    found = last_readers(steps, plan.results)
    for stage in (each for each in plan.stages if isinstance(each, Gather) and each.output.source != "static"):
        assert found.keys() >= {stage.output, *kept_names(stage)}
        if stage.output.needs_grad:
            assert found.keys() >= {Grad(stage.output), *published_names(stage)}


def test_the_ties_of_a_maximum_are_released_when_published_and_the_published_matrix_when_gathered():
    _, steps = made("sage max")
    found = last_readers(steps)
    stage = next(each for each in steps.stages if isinstance(each, Gather) and each.output.needs_grad)
    kinds = {name: {steps.table.steps[number].kind for number in numbers} for name, numbers in found.items()}
    assert kinds[Extra(stage.output, "ties")] == {Kind.GATHER, Kind.GRAD_SCATTER}
    assert kinds[Published(stage.output, "share")] == {Kind.GRAD_SCATTER, Kind.GRAD_GATHER}


def test_in_an_evaluation_nothing_is_kept_beyond_the_gather_and_results_stay():
    plan, steps = made("sage max", backward=False)
    found = last_readers(steps, plan.results)
    extras = {name: numbers for name, numbers in found.items() if isinstance(name, Extra)}
    assert extras
    assert {steps.table.steps[number].kind for numbers in extras.values() for number in numbers} == {Kind.GATHER}
    assert plan.results.isdisjoint(found)
    assert not any(isinstance(name, Grad | Published) for name in found)
    assert any(isinstance(name, Slot) for name in found)
