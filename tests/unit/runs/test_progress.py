import json

import pytest

from dorylus.pipeline import Kind, Task
from dorylus.runs.progress import RunProgress
from dorylus.runtime.engine import Span
from dorylus.runtime.runtime import Delivery, EpochReport


def report(seconds, cores, pool, loss=0.5, **others):
    """An epoch in which the cores and the pool had something to do for so long."""
    kinds = ((Kind.GATHER, cores), (Kind.APPLY_VERTEX, pool))
    spans = [Span(Task(0, 0, 0, 0, kind), 0, 0, 0.0, busy) for kind, busy in kinds]
    return EpochReport(loss, seconds, spans, [Delivery(0, 1, 8, 0.0, 0.125)], **others)


def test_the_first_score_is_the_best_so_far():
    progress = RunProgress()
    assert progress.note(0.0, epoch=3)
    assert (progress.best_score, progress.best_epoch, progress.stale) == (0.0, 3, 0)


@pytest.mark.parametrize("score", [0.5, 0.4])
def test_an_equal_or_lower_score_is_no_better(score):
    progress = RunProgress()
    progress.note(0.5, epoch=1)
    assert not progress.note(score, epoch=2)
    assert not progress.note(score, epoch=3)
    assert (progress.best_score, progress.best_epoch, progress.stale) == (0.5, 1, 2)


def test_a_better_score_restarts_the_count():
    progress = RunProgress()
    for epoch, score in enumerate((0.5, 0.4, 0.6)):
        progress.note(score, epoch)
    assert (progress.best_epoch, progress.stale) == (2, 0)


def test_progress_comes_back_from_plain_data():
    progress = RunProgress(losses=[1.5, 0.1 + 0.2], epoch_seconds=[0.25, 0.5], stopped="patience")
    progress.note(0.75, epoch=2)
    again = RunProgress.from_dict(json.loads(json.dumps(progress.to_dict())))
    assert again == progress


def test_two_runs_do_not_share_their_losses():
    RunProgress().losses.append(1.0)
    assert RunProgress().losses == []


def test_traffic_reads_and_waits_of_epochs_are_added_up():
    progress = RunProgress()
    progress.add(report(2.0, cores=1.5, pool=0.5, traffic={"ghosts": 100}, ages={0: 5, 1: 2}, waits=1))
    progress.add(report(1.0, 0.25, 0.0, 0.25, traffic={"ghosts": 10, "weights": 3}, ages={1: 1, -1: 4}, waits=2))
    assert (progress.losses, progress.epoch_seconds) == ([0.5, 0.25], [2.0, 1.0])
    assert progress.traffic == {"ghosts": 110, "weights": 3}
    assert progress.ages == {"0": 5, "1": 3, "-1": 4}
    assert progress.busy_seconds == {"cores": 1.75, "pool": 0.5, "network": 0.25}
    assert (progress.busy_wall_s, progress.waits) == (3.0, 3)


def test_totals_continue_after_a_resume():
    progress = RunProgress(exact_from=3)
    progress.add(report(2.0, cores=1.5, pool=0.0, traffic={"ghosts": 100}, ages={1: 2}, waits=1))
    again = RunProgress.from_dict(json.loads(json.dumps(progress.to_dict())))
    assert again == progress
    again.add(report(1.0, cores=0.5, pool=0.0, traffic={"ghosts": 1}, ages={1: 1}, waits=1))
    assert (again.traffic, again.ages, again.busy_seconds["cores"]) == ({"ghosts": 101}, {"1": 3}, 2.0)
    assert (again.busy_wall_s, again.waits, again.exact_from) == (3.0, 2, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"losses": "abc"},
        {"losses": ["abc"]},
        {"best_score": "x"},
        {"best_epoch": 1e300},
        {"busy_seconds": None},
        {"busy_seconds": {"cores": []}},
        {"busy_wall_s": 10**400},
        {"ages": []},
        {"stopped": 3},
        {"unknown": 1},
    ],
)
def test_progress_of_other_kinds_is_refused(change):
    whole = RunProgress(losses=[0.5], best_score=0.25, best_epoch=1).to_dict()
    assert RunProgress.from_dict(whole).losses == [0.5]
    with pytest.raises((TypeError, ValueError)):
        RunProgress.from_dict(whole | change)


def test_history_leaves_out_what_an_older_checkpoint_has_not():
    progress = RunProgress(losses=[3.0, 2.0, 1.0], epoch_seconds=[0.5, 0.5, 0.5], epoch_usd=[0.25])
    progress.note_scores({"val_accuracy": 0.5, "test_accuracy": float("nan")}, epoch=2)
    assert progress.history() == {
        "epoch": [1, 2, 3],
        "loss": [3.0, 2.0, 1.0],
        "seconds": [0.5, 0.5, 0.5],
        "usd": [None, None, 0.25],
        "val_accuracy": [None, 0.5, None],
    }


@pytest.mark.parametrize(
    "change",
    [
        {"evaluations": [{"epoch": 3, "val_accuracy": 0.5}]},
        {"evaluations": [{"val_accuracy": 0.5}]},
        {"evaluations": [{"epoch": 1, "val_accuracy": "high"}]},
        {"evaluations": [[1, 0.5]]},
        {"evaluations": {"1": 0.5}},
        {"epoch_usd": [1.0, 2.0, 3.0]},
        {"epoch_usd": ["much"]},
        {"epoch_usd": 5},
    ],
)
def test_scores_and_costs_of_a_damaged_checkpoint_are_refused(change):
    stored = RunProgress(losses=[1.5, 0.5], epoch_seconds=[0.25, 0.5]).to_dict()
    with pytest.raises((TypeError, ValueError)):
        RunProgress.from_dict({**stored, **change})
