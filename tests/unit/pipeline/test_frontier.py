from itertools import permutations

import pytest

from dorylus.errors import TrainingError
from dorylus.pipeline import Arrived, Kind, PeerFinished, Task
from dorylus.pipeline.scheduler import Frontier


def rows(epoch):
    return Arrived(Task(epoch, 0, 5, 1, Kind.SCATTER))


def test_an_epoch_is_over_with_the_last_of_words_and_rows_in_any_order():
    for first, second, last in permutations([PeerFinished(0, 4), PeerFinished(1, 4), rows(4)]):
        frontier = Frontier(4, num_servers=2, num_arrivals=1)
        assert [frontier.hear(4, first), frontier.hear(4, second)] == [False, False]
        assert frontier.over == 3
        assert frontier.hear(4, last)
        assert frontier.over == 4


def test_an_epoch_is_not_over_before_the_one_before_it():
    frontier = Frontier(0, num_servers=1, num_arrivals=0)
    assert not frontier.hear(1, PeerFinished(0, 1))
    assert frontier.hear(0, PeerFinished(0, 0))
    assert frontier.over == 1


def test_a_peers_step_is_remembered_but_ends_no_epoch():
    frontier = Frontier(0, num_servers=1, num_arrivals=0)
    assert not frontier.hear(0, PeerFinished(0, 0, 3))
    assert list(frontier.heard(0)) == [PeerFinished(0, 0, 3)]
    assert frontier.over == -1


def test_what_was_said_of_an_epoch_that_is_over_is_forgotten():
    frontier = Frontier(0, num_servers=1, num_arrivals=1)
    frontier.hear(0, rows(0))
    assert list(frontier.heard(0)) == [rows(0)]
    frontier.hear(0, PeerFinished(0, 0))
    assert list(frontier.heard(0)) == []


@pytest.mark.parametrize("over", [False, True])
def test_a_second_report_is_refused(over):
    frontier = Frontier(0, num_servers=1, num_arrivals=1)
    frontier.hear(0, rows(0))
    if over:
        frontier.hear(0, PeerFinished(0, 0))
    with pytest.raises(TrainingError, match="exactly once"):
        frontier.hear(0, rows(0))
