import pytest

from dorylus.errors import ConfigError, TrainingError
from dorylus.pipeline import (
    Arrived,
    EpochFinished,
    Finished,
    Kind,
    Need,
    PeerFinished,
    Permit,
    Reads,
    Scheduler,
    Scope,
    Start,
    Step,
    StepFinished,
    Synchronise,
    TaskTable,
    Waiting,
    bounded,
    no_pipe,
    pipe,
)

GATHER = TaskTable(
    (
        Step(Kind.APPLY_VERTEX, 0),
        Step(Kind.SCATTER, 0, (Need(0, Scope.OWN),)),
        Step(Kind.GATHER, 1, (Need(1, Scope.OWN), Need(1, Scope.SOURCES))),
    )
)
ONE_STEP = TaskTable((Step(Kind.GATHER, 0),))
CHAIN = Reads.of([frozenset({0, 1}), frozenset({1, 2}), frozenset({2, 3}), frozenset({3})])


def alone(schedule, reads, **options):
    """The scheduler of a cluster of one server."""
    return Scheduler(schedule, reads, server=0, bounds=[0, reads.num_intervals], **options)


def second_of_two(make_schedule=pipe, **options):
    """The scheduler of intervals 2 and 3: interval 2 reads from 0 and itself, 3 from none; none reads from 1."""
    reads = Reads(range(2, 4), (frozenset({0, 2}), frozenset()), (frozenset({2}), frozenset()))
    return Scheduler(make_schedule(GATHER), reads, server=1, bounds=[0, 2, 4], **options)


def finish(scheduler, *cells, epoch=0, table=GATHER):
    """The decisions of the scheduler after these (step, interval) finish, one after the other."""
    return [action for cell in cells for action in scheduler.handle(Finished(table.task(epoch, *cell)))]


def started(actions):
    """The (epoch, step, interval) of the tasks that actions start."""
    return [(a.task.epoch, a.task.step, a.task.interval) for a in actions if isinstance(a, Start)]


EVERY_CELL = [(step, interval) for step in range(3) for interval in (2, 3)]


def test_a_gather_starts_while_intervals_it_does_not_read_are_not_scattered_yet():
    scheduler = alone(pipe(GATHER), CHAIN)
    scheduler.handle(Permit(0))
    assert started(finish(scheduler, (0, 0), (0, 1), (1, 0))) == [(0, 1, 0), (0, 1, 1)]
    assert started(finish(scheduler, (1, 1))) == [(0, 2, 0)]  # 2 and 3 are far from their scatter


def test_without_piping_the_same_gather_waits_for_every_scatter():
    scheduler = alone(no_pipe(GATHER), CHAIN)
    scheduler.handle(Permit(0))
    assert finish(scheduler, (0, 0), (0, 1), (0, 2)) == []
    assert started(finish(scheduler, (0, 3))) == [(0, 1, interval) for interval in range(4)]
    assert finish(scheduler, (1, 0), (1, 1), (1, 2)) == []
    assert started(finish(scheduler, (1, 3))) == [(0, 2, interval) for interval in range(4)]


def test_tasks_of_a_step_that_waits_for_the_previous_interval_run_one_by_one():
    table = TaskTable((Step(Kind.GRAD_SCATTER, 0, (Need(0, Scope.PREVIOUS),)),))
    for make_schedule in (pipe, no_pipe):
        scheduler = alone(make_schedule(table), Reads.complete(3))
        assert started(scheduler.handle(Permit(0))) == [(0, 0, 0)]
        assert started(finish(scheduler, (0, 0), table=table)) == [(0, 0, 1)]
        assert started(finish(scheduler, (0, 1), table=table)) == [(0, 0, 2)]


def test_the_first_interval_of_a_server_has_no_previous_one_on_another():
    table = TaskTable((Step(Kind.GRAD_SCATTER, 0, (Need(0, Scope.PREVIOUS),)),))
    reads = Reads(range(2, 4), (frozenset(),) * 2, (frozenset(),) * 2)
    scheduler = Scheduler(pipe(table), reads, server=1, bounds=[0, 2, 4])
    assert started(scheduler.handle(Permit(0))) == [(0, 0, 2)]


def test_nothing_starts_before_it_is_permitted():
    scheduler = alone(pipe(GATHER), CHAIN, first_epoch=3)
    assert scheduler.handle(Permit(2)) == []
    assert started(scheduler.handle(Permit(3))) == [(3, 0, interval) for interval in range(4)]


def test_a_permit_during_an_epoch_is_remembered_until_it_is_over():
    scheduler = alone(pipe(ONE_STEP), Reads.complete(1))
    scheduler.handle(Permit(0))
    assert scheduler.handle(Permit(1)) == []
    assert finish(scheduler, (0, 0), table=ONE_STEP) == [EpochFinished(0), Start(ONE_STEP.task(1, 0, 0))]


def test_a_permit_that_comes_late_starts_the_epoch():
    scheduler = alone(pipe(ONE_STEP), Reads.complete(1))
    scheduler.handle(Permit(0))
    assert finish(scheduler, (0, 0), table=ONE_STEP) == [EpochFinished(0)]
    assert scheduler.handle(Permit(1)) == [Start(ONE_STEP.task(1, 0, 0))]


def test_an_older_permit_has_no_effect():
    scheduler = alone(pipe(ONE_STEP), Reads.complete(1))
    scheduler.handle(Permit(1))
    scheduler.handle(Permit(0))
    assert started(finish(scheduler, (0, 0), table=ONE_STEP)) == [(1, 0, 0)]


def test_a_gather_waits_until_the_rows_of_its_sources_on_other_servers_have_arrived():
    scheduler = second_of_two()
    scheduler.handle(Permit(0))
    assert started(finish(scheduler, (0, 2), (0, 3), (1, 2), (1, 3))) == [(0, 1, 2), (0, 1, 3), (0, 2, 3)]
    assert started(scheduler.handle(Arrived(GATHER.task(0, 1, 0)))) == [(0, 2, 2)]


def test_rows_that_arrive_before_the_epoch_is_open_are_remembered():
    scheduler = second_of_two()
    assert scheduler.handle(Arrived(GATHER.task(0, 1, 0))) == []
    scheduler.handle(Permit(0))
    assert started(finish(scheduler, (0, 2), (1, 2))) == [(0, 1, 2), (0, 2, 2)]


def test_rows_that_no_task_here_reads_change_nothing():
    scheduler = second_of_two()
    scheduler.handle(Permit(0))
    assert [scheduler.handle(Arrived(GATHER.task(0, 1, 1))) for _ in range(2)] == [[], []]


def test_without_piping_a_step_waits_for_the_reports_of_every_peer_and_is_reported_to_them():
    scheduler = second_of_two(no_pipe)
    scheduler.handle(Permit(0))
    assert finish(scheduler, (0, 2), (0, 3)) == [StepFinished(0, 0)]
    assert started(scheduler.handle(PeerFinished(0, 0, 0))) == [(0, 1, 2), (0, 1, 3)]
    finish(scheduler, (1, 2), (1, 3))
    assert started(scheduler.handle(PeerFinished(0, 0, 1))) == [(0, 2, 3)]  # the rows for 2 are still on their way
    assert started(scheduler.handle(Arrived(GATHER.task(0, 1, 0)))) == [(0, 2, 2)]


def test_steps_that_no_task_needs_of_every_interval_are_not_reported():
    scheduler = second_of_two()
    scheduler.handle(Permit(0))
    assert not [a for a in finish(scheduler, (0, 2), (0, 3), (1, 2), (1, 3)) if isinstance(a, StepFinished)]


def test_the_next_epoch_waits_for_the_reports_and_the_rows_of_the_peers():
    scheduler = second_of_two(bounded(0))
    scheduler.handle(Permit(2))
    scheduler.handle(Arrived(GATHER.task(0, 1, 0)))
    finish(scheduler, *EVERY_CELL)
    assert started(scheduler.handle(PeerFinished(0, 0))) == [(1, 0, 2), (1, 0, 3)]
    actions = finish(scheduler, *EVERY_CELL, epoch=1)
    assert actions[-3:] == [Waiting(2, 2), EpochFinished(1), Waiting(3, 2)]
    assert scheduler.handle(PeerFinished(0, 1)) == []  # the report overtook the rows
    assert started(scheduler.handle(Arrived(GATHER.task(1, 1, 0)))) == [(2, 0, 2), (2, 0, 3)]


def test_waiting_is_reported_once_and_held_intervals_start_in_order_when_the_bound_moves():
    scheduler = alone(bounded(1)(ONE_STEP), Reads.complete(3))
    scheduler.handle(Permit(9))
    assert finish(scheduler, (0, 2), (0, 1), table=ONE_STEP) == [Waiting(2, 1), Waiting(1, 1)]
    assert scheduler.handle(Permit(10)) == []
    actions = finish(scheduler, (0, 0), table=ONE_STEP)
    assert actions == [EpochFinished(0), *(Start(ONE_STEP.task(1, 0, interval)) for interval in range(3))]


def test_an_interval_runs_ahead_of_the_slowest_by_the_staleness_and_no_further():
    scheduler = alone(bounded(2)(ONE_STEP), Reads.complete(2))
    scheduler.handle(Permit(9))
    finish(scheduler, (0, 0), (0, 1), table=ONE_STEP)
    assert started(finish(scheduler, (0, 0), table=ONE_STEP, epoch=1)) == [(2, 0, 0)]
    assert started(finish(scheduler, (0, 0), table=ONE_STEP, epoch=2)) == [(3, 0, 0)]
    assert finish(scheduler, (0, 0), table=ONE_STEP, epoch=3) == [Waiting(0, 4)]
    actions = finish(scheduler, (0, 1), table=ONE_STEP, epoch=1)
    assert actions == [EpochFinished(1), Start(ONE_STEP.task(4, 0, 0)), Start(ONE_STEP.task(2, 0, 1))]


def test_an_interval_that_is_not_permitted_is_not_reported_to_wait_for_the_bound():
    scheduler = alone(bounded(0)(ONE_STEP), Reads.complete(2))
    scheduler.handle(Permit(0))
    assert finish(scheduler, (0, 0), table=ONE_STEP) == []
    assert scheduler.handle(Permit(1)) == [Waiting(0, 1)]


def test_a_resumed_run_begins_with_an_exact_epoch():
    scheduler = second_of_two(bounded(1), first_epoch=7)
    scheduler.handle(Permit(7))
    actions = [scheduler.handle(Finished(GATHER.task(7, step, 2))) for step in (0, 1)]
    assert started(actions[-1]) == []
    assert started(scheduler.handle(Arrived(GATHER.task(7, 1, 0)))) == [(7, 2, 2)]


def test_relaxed_epochs_wait_for_no_peer_and_exact_ones_do_again_after_a_synchronise():
    scheduler = second_of_two(bounded(1))
    scheduler.handle(Permit(1))
    for epoch in (0, 1):
        scheduler.handle(Arrived(GATHER.task(epoch, 1, 0)))
        scheduler.handle(PeerFinished(0, epoch))
    finish(scheduler, *EVERY_CELL)
    assert scheduler.handle(Synchronise(2)) == []
    finish(scheduler, *EVERY_CELL, epoch=1)
    scheduler.handle(Permit(2))
    assert started(finish(scheduler, (0, 2), (1, 2), epoch=2)) == [(2, 1, 2)]
    assert started(scheduler.handle(Arrived(GATHER.task(2, 1, 0)))) == [(2, 2, 2)]


def test_an_epoch_that_was_started_cannot_be_made_exact():
    scheduler = alone(bounded(1)(ONE_STEP), Reads.complete(1))
    scheduler.handle(Permit(1))
    finish(scheduler, (0, 0), table=ONE_STEP)
    with pytest.raises(TrainingError, match="epoch 1 was started already: synchronise before permitting"):
        scheduler.handle(Synchronise(1))


@pytest.mark.parametrize(
    "wrong",
    [GATHER.task(0, 2, 2), GATHER.task(1, 0, 2), GATHER.task(0, 0, 9), GATHER.task(0, 0, 0)],
    ids=["waiting", "epoch", "unknown", "a peer's"],
)
def test_a_finish_of_a_task_that_is_not_running_is_refused(wrong):
    scheduler = second_of_two()
    scheduler.handle(Permit(0))
    with pytest.raises(TrainingError, match="is not running: a task finishes exactly once"):
        scheduler.handle(Finished(wrong))


def test_a_second_finish_of_the_same_task_is_refused():
    scheduler = second_of_two()
    scheduler.handle(Permit(0))
    finish(scheduler, (0, 2))
    with pytest.raises(TrainingError, match="finishes exactly once"):
        finish(scheduler, (0, 2))


@pytest.mark.parametrize("report", [Arrived(GATHER.task(0, 1, 0)), PeerFinished(0, 0)], ids=["rows", "report"])
@pytest.mark.parametrize("over", [False, True], ids=["at once", "when the epoch is over"])
def test_a_report_that_comes_twice_is_refused(report, over):
    scheduler = second_of_two()
    scheduler.handle(Permit(0))
    scheduler.handle(report)
    if over:
        scheduler.handle(PeerFinished(0, 0) if isinstance(report, Arrived) else Arrived(GATHER.task(0, 1, 0)))
        finish(scheduler, *EVERY_CELL)
    with pytest.raises(TrainingError, match=r"was received twice: .* exactly once"):
        scheduler.handle(report)


@pytest.mark.parametrize("server", [-1, 1, 2])
def test_a_report_of_a_server_that_is_no_peer_is_refused(server):
    with pytest.raises(TrainingError, match="names no peer of server 1 of 2"):
        second_of_two().handle(PeerFinished(server, 0))


@pytest.mark.parametrize(("server", "bounds"), [(0, [0, 3]), (1, [0, 4]), (0, [0, 2, 4]), (-1, [0, 4])])
def test_reads_of_other_intervals_than_the_servers_are_refused(server, bounds):
    with pytest.raises(ConfigError, match=r"a server owns the intervals bounds\[server\]"):
        Scheduler(pipe(GATHER), CHAIN, server=server, bounds=bounds)
