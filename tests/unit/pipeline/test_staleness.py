from itertools import permutations

import pytest

from dorylus.errors import TrainingError
from dorylus.pipeline import Arrived, Kind, PeerFinished, Task
from dorylus.pipeline.staleness import Frontier, StalenessBound


def rows(epoch):
    return Arrived(Task(epoch, 0, 5, 1, Kind.SCATTER))


def test_an_epoch_is_finished_with_the_last_of_reports_and_rows_in_any_order():
    for first, second, last in permutations([PeerFinished(0, 4), PeerFinished(1, 4), rows(4)]):
        frontier = Frontier(4, num_servers=2, num_arrivals=1)
        assert [frontier.add(4, first), frontier.add(4, second)] == [False, False]
        assert frontier.epoch == 3
        assert frontier.add(4, last)
        assert frontier.epoch == 4


def test_an_epoch_is_not_finished_before_the_one_before_it():
    frontier = Frontier(0, num_servers=1, num_arrivals=0)
    assert not frontier.add(1, PeerFinished(0, 1))
    assert frontier.add(0, PeerFinished(0, 0))
    assert frontier.epoch == 1


def test_a_peers_step_is_remembered_but_ends_no_epoch():
    frontier = Frontier(0, num_servers=1, num_arrivals=0)
    assert not frontier.add(0, PeerFinished(0, 0, 3))
    assert list(frontier.reports(0)) == [PeerFinished(0, 0, 3)]
    assert frontier.epoch == -1


def test_reports_on_an_epoch_within_the_frontier_are_dropped():
    frontier = Frontier(0, num_servers=1, num_arrivals=1)
    frontier.add(0, rows(0))
    assert list(frontier.reports(0)) == [rows(0)]
    frontier.add(0, PeerFinished(0, 0))
    assert list(frontier.reports(0)) == []


@pytest.mark.parametrize("finished", [False, True])
def test_a_second_report_is_refused(finished):
    frontier = Frontier(0, num_servers=1, num_arrivals=1)
    frontier.add(0, rows(0))
    if finished:
        frontier.add(0, PeerFinished(0, 0))
    with pytest.raises(TrainingError, match="exactly once"):
        frontier.add(0, rows(0))


def test_an_interval_is_at_most_staleness_epochs_ahead_of_the_slowest():
    bound = StalenessBound(staleness=2, first_epoch=0)
    assert [bound.required_frontier(epoch) for epoch in range(5)] == [-1, 0, -1, 0, 1]  # 0 is exact: a barrier after it


def test_a_barrier_is_on_both_sides_of_an_exact_epoch():
    bound = StalenessBound(staleness=3, first_epoch=0)
    bound.make_exact(6)
    bound.make_exact(8)  # no later than it is already
    assert [bound.is_exact(epoch) for epoch in (0, 1, 5, 6, 7)] == [True, False, False, True, True]
    assert [bound.required_frontier(epoch) for epoch in (5, 6, 7)] == [1, 5, 6]
