from collections import Counter
from dataclasses import replace

import pytest
from clusters import cases
from hypothesis import given
from hypothesis import strategies as st
from simulated_cluster import SimulatedCluster
from task_tables import any_tables, program_table

from dorylus.errors import ConfigError
from dorylus.pipeline import MODES, Need, Scheduler, Scope, bounded, make_schedule, no_pipe, pipe
from dorylus.servers.parameter.stash import Stash
from draws import draws


@given(any_tables())
def test_pipe_takes_the_table_as_it_is_in_every_epoch(table):
    schedule = pipe(table)
    assert (schedule.exact, schedule.relaxed, schedule.staleness) == (table, table, 0)


@given(any_tables())
def test_no_pipe_adds_to_every_step_that_the_one_before_is_finished_everywhere(table):
    schedule = no_pipe(table)
    assert schedule.relaxed == schedule.exact
    for index, (step, plain) in enumerate(zip(schedule.exact.steps, table.steps, strict=True)):
        before = {Need(index - 1, Scope.EVERY)} if index else set()
        assert set(step.needs) == set(plain.needs) | before


@draws(15)
@given(cases(staleness=st.none()).map(lambda case: replace(case, piped=False)))
def test_without_piping_no_task_starts_before_all_earlier_steps_are_finished_on_every_server(case):
    finished: Counter[tuple[int, int]] = Counter()
    for what, task in SimulatedCluster(case, Scheduler, Stash).run().history:
        finished[task.epoch, task.step] += what == "finish"
        assert all(finished[task.epoch, step] == case.num_intervals for step in range(task.step))


@given(any_tables(), st.integers(0, 5))
def test_bounded_keeps_in_relaxed_epochs_only_the_own_needs_of_an_interval(table, staleness):
    schedule = bounded(staleness)(table)
    assert schedule.exact == table
    assert schedule.staleness == staleness
    for step, plain in zip(schedule.relaxed.steps, table.steps, strict=True):
        assert step.needs == tuple(need for need in plain.needs if need.scope is Scope.OWN)
        assert (step.kind, step.phase) == (plain.kind, plain.phase)


def test_modes_are_made_by_name():
    table = program_table(["transform first", "gather first"])
    made = {mode: make_schedule(mode, 2 if mode == "async" else 0)(table) for mode in MODES}
    assert made == {"pipe": pipe(table), "no_pipe": no_pipe(table), "async": bounded(2)(table)}


def test_an_unknown_mode_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"mode='asinc' is unknown: the known ones are .* Did you mean 'async'\?"):
        make_schedule("asinc")


@pytest.mark.parametrize("mode", ["pipe", "no_pipe"])
def test_a_staleness_is_refused_where_nothing_is_stale(mode):
    with pytest.raises(ConfigError, match=r"staleness=1 with mode='(no_)?pipe'.* use mode='async', or staleness=0"):
        make_schedule(mode, 1)


def test_a_negative_staleness_is_refused():
    with pytest.raises(ConfigError, match="staleness=-1: an interval is 0 or more epochs ahead"):
        make_schedule("async", -1)(program_table(["edges"]))
