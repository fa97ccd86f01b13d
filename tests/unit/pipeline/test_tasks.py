import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylus.errors import ConfigError
from dorylus.pipeline import Kind, Need, Reads, Scope, Step, Task, TaskTable


@pytest.mark.parametrize("need", [Need(1, Scope.OWN), Need(1, Scope.EVERY), Need(2, Scope.PREVIOUS)])
def test_a_step_that_waits_for_itself_or_a_later_one_is_refused(need):
    with pytest.raises(ConfigError, match="which does not come before it: order the steps"):
        TaskTable((Step(Kind.GATHER, 0), Step(Kind.SCATTER, 0, (need,)), Step(Kind.GATHER, 1)))


def test_a_step_may_wait_for_its_own_previous_interval():
    table = TaskTable((Step(Kind.GRAD_SCATTER, 4, (Need(0, Scope.PREVIOUS),)),))
    assert table.task(2, 0, 1) == Task(epoch=2, phase=4, interval=1, step=0, kind=Kind.GRAD_SCATTER)


def test_the_earliest_epoch_then_phase_then_interval_comes_first():
    tasks = [Task(e, p, i, s, Kind.GATHER) for e, p, i, s in [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 9)]]
    assert [tuple(task[:4]) for task in sorted(tasks)] == [(0, 0, 0, 9), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0)]


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.frozensets(st.integers(0, n - 1)), min_size=n, max_size=n)))
def test_readers_are_the_inverse_of_sources(sources):
    reads = Reads.of(sources)
    assert reads.mine == range(len(sources))
    assert reads.num_intervals == len(sources)
    for i in range(len(sources)):
        for j in range(len(sources)):
            assert (j in reads.sources[i]) == (i in reads.readers[j])


def test_complete_reads_are_from_every_interval():
    reads = Reads.complete(3)
    assert reads.sources == reads.readers == (frozenset({0, 1, 2}),) * 3


def test_own_needs_are_those_that_concern_no_other_interval():
    needs = tuple(Need(0, scope) for scope in Scope)
    assert Step(Kind.GATHER, 1, needs).own_needs == (Need(0, Scope.OWN),)
