"""Runs whose pool fails for good: the finished epochs are saved, and the resumed runs reach the same weights."""

import pytest
import torch

import dorylus
from dorylus.errors import DeadlineError
from dorylus.pools import ThreadsPool
from dorylus.pools.pool import PoolFault, Unavailable


class Dying:
    """A pool of threads that fails after a number of calls."""

    def __init__(self, calls):
        self.calls_left, self.inner = calls, ThreadsPool()

    def submit(self, call, done, failed):
        self.calls_left -= 1
        if self.calls_left < 0:
            failed(Unavailable("the functions are gone."))
        else:
            self.inner.submit(call, done, failed)

    def close(self):
        self.inner.close()


@pytest.fixture(scope="module")
def graph():
    return dorylus.communities(num_vertices=300, num_classes=3, seed=0)


SETTINGS = {"epochs": 12, "servers": 2, "intervals": 3, "eval_every": 4, "checkpoint_every": 5, "threads": 1}


@pytest.mark.parametrize(
    "calls", [60, 130, 175, 200]
)  # 42 an epoch: in the second, the fourth, its evaluation, and the fifth
def test_a_run_whose_pool_is_gone_is_saved_and_goes_on_to_the_same_bits(graph, tmp_path, calls):
    model = dorylus.gcn(hidden=4, dropout=0.5)
    whole = dorylus.train(graph, model, **SETTINGS)
    with pytest.raises(
        PoolFault, match=r"the functions are gone\. The run is saved after epoch \d+: .* dorylus resume"
    ):
        dorylus.train(graph, model, pool=Dying(calls), run_dir=tmp_path / "run", **SETTINGS)
    with dorylus.Trainer.resume(tmp_path / "run", graph, model) as trainer:
        assert trainer.epoch > 0
        assert trainer.epoch not in (5, 10)  # not only what was due to be saved anyway
        last = trainer.run().result()
    assert last.losses == whole.losses
    ours, theirs = last.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_run_without_a_folder_says_that_its_epochs_are_lost(graph):
    with pytest.raises(PoolFault, match=r"no folder, so its \d epochs are lost: use run_dir"):
        dorylus.train(graph, dorylus.gcn(hidden=4), pool=Dying(40), **SETTINGS)


def test_an_asynchronous_run_is_saved_too(graph, tmp_path):
    settings = {**SETTINGS, "mode": "async", "staleness": 1}
    with pytest.raises(PoolFault, match="saved after epoch"):
        dorylus.train(graph, dorylus.gcn(hidden=4), pool=Dying(60), run_dir=tmp_path / "run", **settings)
    result = dorylus.resume(tmp_path / "run", graph, dorylus.gcn(hidden=4))
    assert (result.stopped, len(result.losses)) == ("epochs", 12)


class Silent(Dying):
    """A pool that stops answering after a number of calls, without an error."""

    def submit(self, call, done, failed):
        self.calls_left -= 1
        if self.calls_left >= 0:
            self.inner.submit(call, done, failed)


def test_a_run_whose_pool_falls_silent_is_saved_at_its_deadline(graph, tmp_path):
    with pytest.raises(DeadlineError, match=r"no answer within deadline_s=1.* The run is saved after epoch 2"):
        dorylus.train(
            graph, dorylus.gcn(hidden=4), pool=Silent(100), run_dir=tmp_path / "run", deadline_s=1, **SETTINGS
        )
    with dorylus.Trainer.resume(tmp_path / "run", graph, dorylus.gcn(hidden=4)) as trainer:
        assert trainer.epoch == 2


def test_a_pool_that_is_gone_at_the_last_evaluation_leaves_a_trained_run(graph, tmp_path):
    settings = {**SETTINGS, "eval_every": 0}
    with pytest.raises(PoolFault, match="The run is saved after epoch 12"):
        dorylus.train(graph, dorylus.gcn(hidden=4), pool=Dying(12 * 42 + 1), run_dir=tmp_path / "run", **settings)
    assert len(dorylus.resume(tmp_path / "run", graph, dorylus.gcn(hidden=4)).losses) == 12
