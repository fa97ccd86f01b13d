import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_tables import World, awaited, cells_of, relations, tables

from dorylus.errors import TrainingError
from dorylus.pipeline import (
    SCHEDULES,
    EpochFinished,
    Finished,
    Kind,
    Need,
    Permit,
    Reads,
    Scheduler,
    Scope,
    Start,
    Step,
    Task,
    TaskTable,
)

modes = st.sampled_from(sorted(SCHEDULES))
orders = st.integers(0, 2**32).map(lambda seed: random.Random(seed).choice)


def cell(task: Task) -> tuple[int, int]:
    return task.step, task.interval


@given(tables(), relations(), modes, orders)
def test_every_task_runs_exactly_once_and_the_epoch_ends(table, reads, mode, choose):
    world = World(Scheduler(SCHEDULES[mode](table), reads))
    world.permit(0)
    world.run(choose)
    assert sorted(cell(task) for task in world.started()) == sorted(cells_of(table, reads))
    assert world.epochs_over == [0]


@given(tables(), relations(), modes, orders)
def test_no_task_starts_before_all_it_needs_is_finished(table, reads, mode, choose):
    world = World(Scheduler(SCHEDULES[mode](table), reads))
    world.permit(0)
    world.run(choose)
    for task in world.started():
        assert awaited(table, reads, cell(task)) <= {cell(done) for done in world.finished_before_start_of(task)}


@given(tables(), relations(), orders)
def test_piped_tasks_start_the_moment_their_last_need_is_finished(table, reads, choose):
    world = World(Scheduler(SCHEDULES["pipe"](table), reads))
    world.permit(0)
    finished: set[tuple[int, int]] = set()
    while True:
        possible = {each for each in cells_of(table, reads) if awaited(table, reads, each) <= finished}
        assert {cell(task) for task in world.started()} == possible
        if not world.running:
            break
        task = choose(world.running)
        finished.add(cell(task))
        world.finish(task)


@given(tables(), relations(), orders)
def test_without_piping_a_step_waits_until_the_one_before_is_finished_everywhere(table, reads, choose):
    world = World(Scheduler(SCHEDULES["no_pipe"](table), reads))
    world.permit(0)
    world.run(choose)
    for task in world.started():
        earlier = {each for each in cells_of(table, reads) if each[0] < task.step}
        assert earlier <= {cell(done) for done in world.finished_before_start_of(task)}


@given(tables(), relations(), modes, orders)
def test_something_runs_until_the_epoch_is_over(table, reads, mode, choose):
    world = World(Scheduler(SCHEDULES[mode](table), reads))
    world.permit(0)
    for _ in range(len(cells_of(table, reads))):
        assert world.running
        assert world.epochs_over == []
        world.finish(choose(world.running))
    assert world.running == []
    assert world.epochs_over == [0]


@given(tables(), relations(), modes, st.integers(0, 2**32))
def test_the_same_events_give_the_same_actions(table, reads, mode, seed):
    def actions() -> list[object]:
        world = World(Scheduler(SCHEDULES[mode](table), reads))
        return [world.permit(1), *world.run(random.Random(seed).choice)]

    assert actions() == actions()


@settings(max_examples=50)
@given(tables(max_steps=4), relations(max_intervals=3), modes, orders, st.integers(0, 5))
def test_epochs_follow_one_another_in_order(table, reads, mode, choose, first):
    world = World(Scheduler(SCHEDULES[mode](table), reads, first_epoch=first))
    world.permit(first + 2)
    world.run(choose)
    assert world.epochs_over == [first, first + 1, first + 2]
    epochs = [task.epoch for _, task in world.history]
    assert epochs == sorted(epochs)


@given(tables(), relations(), modes, orders)
def test_the_weight_update_comes_last(table, reads, mode, choose):
    world = World(Scheduler(SCHEDULES[mode](table), reads))
    world.permit(1)
    world.run(choose)
    for epoch in (0, 1):
        of_epoch = [(what, task) for what, task in world.history if task.epoch == epoch]
        assert [(what, task.kind) for what, task in of_epoch[-2:]] == [
            ("start", Kind.WEIGHT_UPDATE),
            ("finish", Kind.WEIGHT_UPDATE),
        ]


GATHER = TaskTable(
    (
        Step(Kind.APPLY_VERTEX, 0),
        Step(Kind.SCATTER, 0, (Need(0, Scope.OWN),)),
        Step(Kind.GATHER, 1, (Need(1, Scope.OWN), Need(1, Scope.SOURCES))),
    )
)
CHAIN = Reads.of([frozenset({0, 1}), frozenset({1, 2}), frozenset({2, 3}), frozenset({3})])


def test_a_gather_starts_while_intervals_it_does_not_read_are_not_scattered_yet():
    world = World(Scheduler(SCHEDULES["pipe"](GATHER), CHAIN))
    world.permit(0)
    for step, interval in ((0, 0), (0, 1), (1, 0)):
        world.finish(GATHER.task(0, step, interval))
    assert GATHER.task(0, 2, 0) not in world.started()
    assert world.finish(GATHER.task(0, 1, 1)) == [Start(GATHER.task(0, 2, 0))]
    assert {GATHER.task(0, 0, 2), GATHER.task(0, 0, 3)} <= set(world.running)  # far from their scatter


def test_without_piping_the_same_gather_waits_for_every_scatter():
    world = World(Scheduler(SCHEDULES["no_pipe"](GATHER), CHAIN))
    world.permit(0)
    for interval in (0, 1, 2):
        assert world.finish(GATHER.task(0, 0, interval)) == []
    assert len(world.finish(GATHER.task(0, 0, 3))) == 4  # now all scatters
    for interval in (0, 1, 2):
        assert world.finish(GATHER.task(0, 1, interval)) == []
    assert [action.task.step for action in world.finish(GATHER.task(0, 1, 3))] == [2, 2, 2, 2]


def test_tasks_of_a_step_that_waits_for_the_previous_interval_run_one_by_one():
    table = TaskTable((Step(Kind.GRAD_SCATTER, 0, (Need(0, Scope.PREVIOUS),)),))
    for mode in SCHEDULES:
        world = World(Scheduler(SCHEDULES[mode](table), Reads.complete(3)))
        world.permit(0)
        seen = []
        while world.running:
            (task,) = world.running
            seen.append(task.interval)
            world.finish(task)
        assert seen == [0, 1, 2]


def test_nothing_starts_before_it_is_permitted():
    scheduler = Scheduler(GATHER, CHAIN, first_epoch=3)
    assert scheduler.handle(Permit(2)) == []
    assert [action.task.epoch for action in scheduler.handle(Permit(3))] == [3, 3, 3, 3]


def test_a_permit_during_an_epoch_is_remembered_until_it_is_over():
    table = TaskTable((Step(Kind.GATHER, 0),))
    scheduler = Scheduler(table, Reads.complete(1))
    scheduler.handle(Permit(0))
    assert scheduler.handle(Permit(1)) == []
    assert scheduler.handle(Finished(table.task(0, 0, 0))) == [EpochFinished(0), Start(table.task(1, 0, 0))]


def test_an_older_permit_takes_nothing_back():
    table = TaskTable((Step(Kind.GATHER, 0),))
    scheduler = Scheduler(table, Reads.complete(1))
    scheduler.handle(Permit(1))
    scheduler.handle(Permit(0))
    assert Start(table.task(1, 0, 0)) in scheduler.handle(Finished(table.task(0, 0, 0)))


@pytest.mark.parametrize(
    "wrong", [GATHER.task(0, 2, 0), GATHER.task(1, 0, 0), GATHER.task(0, 0, 9)], ids=["waiting", "epoch", "unknown"]
)
def test_a_finish_of_a_task_that_is_not_running_is_refused(wrong):
    scheduler = Scheduler(GATHER, CHAIN)
    scheduler.handle(Permit(0))
    with pytest.raises(TrainingError, match="is not running: a task finishes exactly once"):
        scheduler.handle(Finished(wrong))


def test_a_second_finish_of_the_same_task_is_refused():
    scheduler = Scheduler(GATHER, CHAIN)
    scheduler.handle(Permit(0))
    scheduler.handle(Finished(GATHER.task(0, 0, 1)))
    with pytest.raises(TrainingError, match="finishes exactly once"):
        scheduler.handle(Finished(GATHER.task(0, 0, 1)))
