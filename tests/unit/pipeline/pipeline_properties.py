"""Properties of every run, in any order of events. Each property is a function of a case and of the classes.

Passing other classes shows that a property can fail: ``test_broken_schedulers.py`` does.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from clusters import Case, as_pipe
from scheduling_rules import Rules
from simulated_cluster import SimulatedCluster, in_lock_step

from dorylus.pipeline import DENSE, Action, EpochFinished, Start, StepFinished, Waiting

Property = Callable[[Case, type, type], None]


def every_task_runs_exactly_once(case: Case, scheduler: type, stash: type) -> None:
    """Each step of each interval on each server in each permitted epoch is started once and finished once."""
    cluster = SimulatedCluster(case, scheduler, stash).run()
    twice = [task for task, count in Counter(cluster.started).items() if count > 1]
    assert not twice, f"started more than once: {twice}"
    steps, intervals = range(len(case.table.steps)), range(case.num_intervals)
    every = {case.table.task(e, s, i) for e in case.epochs for s in steps for i in intervals}
    assert set(cluster.started) == every
    assert Counter(cluster.finished) == Counter(every)


def nothing_hangs(case: Case, scheduler: type, stash: type) -> None:
    """While something permitted is unfinished, something is running or undelivered: in the end nothing is left over."""
    cluster = SimulatedCluster(case, scheduler, stash).run()
    assert cluster.error is None, cluster.error
    for server in range(case.num_servers):
        over = [
            a.epoch for k, _, actions in cluster.log for a in actions if k == server and isinstance(a, EpochFinished)
        ]
        assert over == list(case.epochs), f"server {server} finished the epochs {over}"


def no_interval_passes_the_bound(case: Case, scheduler: type, stash: type) -> None:
    """No interval starts epoch e before every interval on every server has finished e - 1 - S, and it is permitted."""
    cluster = SimulatedCluster(case, scheduler, stash).run()
    whole = len(case.table.steps) * case.num_intervals
    finished: Counter[int] = Counter()
    for what, task in cluster.history:
        if what == "finish":
            finished[task.epoch] += 1
        else:
            bound = case.bound(task.epoch)
            assert bound < case.first_epoch or finished[bound] == whole, (
                f"{task} started while epoch {bound} was unfinished"
            )


def relaxed_epochs_read_recent_values(case: Case, scheduler: type, stash: type) -> None:
    """A value read in a relaxed epoch is at most S + 1 epochs old, and of no epoch its writer could not be in."""
    for read in SimulatedCluster(case, scheduler, stash).run().reads:
        if not case.is_exact(read.task.epoch):
            assert read.epoch is not None, f"{read.task} found no value of {read.cell}"
            assert read.epoch >= case.bound(read.task.epoch), f"{read.task} read {read.cell} of epoch {read.epoch}"
            assert read.task.epoch > case.bound(read.epoch), f"{read.task} read {read.cell} of epoch {read.epoch}"


def exact_epochs_read_values_of_their_own(case: Case, scheduler: type, stash: type) -> None:
    """A value read in an exact epoch was made in that epoch."""
    for read in SimulatedCluster(case, scheduler, stash).run().reads:
        if case.is_exact(read.task.epoch):
            assert read.epoch == read.task.epoch, f"{read.task} read {read.cell} of epoch {read.epoch}"


def the_same_events_give_the_same_actions(case: Case, scheduler: type, stash: type) -> None:
    """A second scheduler that receives the same events returns the same actions."""
    cluster = SimulatedCluster(case, scheduler, stash).run()
    again = SimulatedCluster(case, scheduler, stash).schedulers
    for server, event, actions in cluster.log:
        assert again[server].handle(event) == actions, f"after {event}"


def in_lock_step_async_reads_as_pipe_does(case: Case, scheduler: type, stash: type) -> None:
    """Tasks that happen to run step by step read the same values, use the same weights, in the same order as piped."""
    case = replace(case, sync_update=True)
    relaxed = SimulatedCluster(case, scheduler, stash).run(in_lock_step)
    exact = SimulatedCluster(as_pipe(case), scheduler, stash).run(in_lock_step)
    assert relaxed.finished == exact.finished
    assert relaxed.reads == exact.reads
    assert all(read.epoch == read.task.epoch for read in relaxed.reads)
    assert relaxed.weights.uses == exact.weights.uses


def backward_uses_the_weights_of_its_forward(case: Case, scheduler: type, stash: type) -> None:
    """All dense tasks of an interval in an epoch use the version that was the newest at the first of them."""
    cluster = SimulatedCluster(case, scheduler, stash).run()
    assert cluster.error is None, cluster.error
    pinned: dict[tuple[int, int], int] = {}
    for task, newest, given in cluster.weights.uses:
        version = pinned.setdefault((task.interval, task.epoch), newest)
        assert given == (version, f"weights {version}"), f"{task} was given {given}, but its forward pinned {version}"
    dense = sum(step.kind in DENSE for step in case.table.steps)
    assert len(cluster.weights.uses) == dense * case.num_intervals * len(case.epochs)


def the_stash_ends_empty_and_stays_within_its_bound(case: Case, scheduler: type, stash: type) -> None:
    """Never more pins than intervals in flight, never more versions than pins, none of either in the end."""
    cluster = SimulatedCluster(case, scheduler, stash).run()
    for pins, versions, in_flight in cluster.weights.sizes:
        assert pins <= in_flight <= case.num_intervals, f"{pins} pins for {in_flight} intervals in flight"
        assert versions <= pins, f"{versions} versions for {pins} pins"
    assert len(cluster.weights.stash) == 0
    assert len(cluster.weights.stash.versions()) == 0


def what_is_due_happens_at_once(case: Case, scheduler: type, stash: type) -> None:
    """After each event exactly those tasks are started, and those steps and epochs reported, that the rules permit."""
    for rules, actions in _followed(case, scheduler, stash):
        assert Counter(a.task for a in actions if isinstance(a, Start)) == Counter(rules.newly_due())
        assert sorted(a for a in actions if isinstance(a, StepFinished)) == rules.newly_finished_steps()
        assert [a for a in actions if isinstance(a, EpochFinished)] == rules.newly_finished_epochs()


def waiting_is_reported_when_only_the_bound_holds(case: Case, scheduler: type, stash: type) -> None:
    """Waiting is returned once for an interval, after the event that leaves only the bound in its way."""
    for rules, actions in _followed(case, scheduler, stash):
        assert Counter(a for a in actions if isinstance(a, Waiting)) == Counter(rules.newly_waiting())


def _followed(case: Case, scheduler: type, stash: type) -> Iterator[tuple[Rules, list[Action]]]:
    """After each event of a run: the rules of the server that received it, and the actions of its scheduler."""
    rules = [Rules(case, server) for server in range(case.num_servers)]
    for server, event, actions in SimulatedCluster(case, scheduler, stash).run().log:
        rules[server].receive(event)
        yield rules[server], actions


PROPERTIES: tuple[Property, ...] = (
    every_task_runs_exactly_once,
    nothing_hangs,
    no_interval_passes_the_bound,
    relaxed_epochs_read_recent_values,
    exact_epochs_read_values_of_their_own,
    the_same_events_give_the_same_actions,
    in_lock_step_async_reads_as_pipe_does,
    backward_uses_the_weights_of_its_forward,
    the_stash_ends_empty_and_stays_within_its_bound,
    what_is_due_happens_at_once,
    waiting_is_reported_when_only_the_bound_holds,
)
