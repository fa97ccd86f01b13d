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
