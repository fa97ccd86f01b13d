import json

import pytest

from dorylus.training.progress import Progress


def test_the_first_score_is_the_best_so_far():
    progress = Progress()
    assert progress.note(0.0, epoch=3)
    assert (progress.best_score, progress.best_epoch, progress.stale) == (0.0, 3, 0)


@pytest.mark.parametrize("score", [0.5, 0.4])
def test_an_equal_or_lower_score_is_no_better(score):
    progress = Progress()
    progress.note(0.5, epoch=1)
    assert not progress.note(score, epoch=2)
    assert not progress.note(score, epoch=3)
    assert (progress.best_score, progress.best_epoch, progress.stale) == (0.5, 1, 2)


def test_a_better_score_begins_to_count_anew():
    progress = Progress()
    for epoch, score in enumerate((0.5, 0.4, 0.6)):
        progress.note(score, epoch)
    assert (progress.best_epoch, progress.stale) == (2, 0)


def test_progress_comes_back_from_plain_data():
    progress = Progress(losses=[1.5, 0.1 + 0.2], epoch_seconds=[0.25, 0.5], stopped="patience")
    progress.note(0.75, epoch=2)
    again = Progress.from_dict(json.loads(json.dumps(progress.to_dict())))
    assert again == progress


def test_two_runs_do_not_share_their_losses():
    Progress().losses.append(1.0)
    assert Progress().losses == []


def test_what_epochs_moved_read_and_waited_for_is_added_up():
    progress = Progress()
    progress.add(2.0, {"ghosts": 100}, {0: 5, 1: 2}, {"cores": 1.5, "pool": 0.5}, waits=1)
    progress.add(1.0, {"ghosts": 10, "weights": 3}, {1: 1, -1: 4}, {"cores": 0.25}, waits=2)
    assert progress.traffic == {"ghosts": 110, "weights": 3}
    assert progress.ages == {"0": 5, "1": 3, "-1": 4}
    assert progress.busy_seconds == {"cores": 1.75, "pool": 0.5}
    assert (progress.busy_wall_s, progress.waits) == (3.0, 3)


def test_totals_go_on_where_they_were_left():
    progress = Progress(exact=True)
    progress.add(2.0, {"ghosts": 100}, {1: 2}, {"cores": 1.5}, waits=1)
    again = Progress.from_dict(json.loads(json.dumps(progress.to_dict())))
    assert again == progress
    again.add(1.0, {"ghosts": 1}, {1: 1}, {"cores": 0.5}, waits=1)
    assert (again.traffic, again.ages, again.busy_seconds) == ({"ghosts": 101}, {"1": 3}, {"cores": 2.0})
    assert (again.busy_wall_s, again.waits, again.exact) == (3.0, 2, True)
