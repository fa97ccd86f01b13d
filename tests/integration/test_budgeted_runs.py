"""Runs with a budget: they stop before it is passed, saved, and go on with a larger one."""

import json
import time
from itertools import pairwise

import pytest
from function_runs import graph as small
from function_runs import model

import dorylus
from dorylus.errors import ConfigError
from dorylus.pools import ThreadsPool
from dorylus.training.accounts import Accounts


@pytest.fixture(scope="module")
def graph():
    return dorylus.communities(num_vertices=300, num_classes=3, seed=0)


@pytest.fixture
def hours(monkeypatch):
    """Each reading of the clock is an hour after the last: one in an epoch, one for the budget, one between epochs."""
    readings = iter(range(0, 10**9, 3600))
    original_init = Accounts.__init__

    def made(books, config, since_s=None):
        original_init(books, config, clock=lambda: float(next(readings)))

    monkeypatch.setattr(Accounts, "__init__", made)
    monkeypatch.setattr("dorylus.runs.ledger.EVERY_S", 1e6)  # each write would read the clock, too


EPOCH_USD = 3 * 0.085


@pytest.mark.parametrize("settings", [{}, {"servers": 2, "intervals": 3, "mode": "async", "staleness": 2}])
def test_a_budget_is_never_passed_by_more_than_an_epochs_cost(graph, hours, settings):
    result = dorylus.train(graph, dorylus.gcn(hidden=4), epochs=50, budget_usd=3.0, instance="c5.large", **settings)
    assert result.stopped == "budget"
    assert 8 <= len(result.losses) <= 13
    assert result.bill.total_usd <= 3.0 + EPOCH_USD
    assert result.bill.total_usd == pytest.approx(float(sum(line.usd for line in result.bill.lines())))


def test_a_run_stopped_by_its_budget_goes_on_with_a_larger_one_to_the_same_weights(graph, hours, tmp_path):
    model = dorylus.gcn(hidden=4, dropout=0.5)
    whole = dorylus.train(graph, model, epochs=20)
    settings = {"epochs": 20, "instance": "c5.large", "run_dir": tmp_path / "run"}
    first = dorylus.train(graph, model, budget_usd=1.0, **settings)
    assert (first.stopped, len(first.losses) < 20) == ("budget", True)
    for too_little in ({}, {"budget_usd": 0.5}):  # what was spent stays spent
        with pytest.raises(ConfigError, match=r"\$\d\.\d+ of \$\S+ spent.*larger budget_usd"):
            dorylus.resume(tmp_path / "run", graph, model, **too_little)
    last = dorylus.resume(tmp_path / "run", graph, model, budget_usd=100.0)
    assert (last.stopped, last.losses) == ("epochs", whole.losses)
    assert last.bill.total_usd > 1.0
    kept = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert kept["bill"]["total_usd"] == last.bill.total_usd


def test_a_budget_that_does_not_cover_the_set_up_is_refused_and_leaves_no_folder(graph, hours, tmp_path):
    with pytest.raises(ConfigError, match=r"\$0\.\d+ of \$\S+ spent.*larger budget_usd"):
        dorylus.train(graph, dorylus.gcn(hidden=4), budget_usd=0.01, instance="c5.large", run_dir=tmp_path / "run")
    assert not list(tmp_path.iterdir())


class SlowFromEpoch(ThreadsPool):
    """A pool that becomes fifty times as slow in the middle of a run."""

    def __init__(self, epoch):
        super().__init__()
        self._epoch = epoch

    def submit(self, call, done, failed):
        time.sleep(0.05 if call.task.epoch >= self._epoch else 0.001)
        super().submit(call, done, failed)


@pytest.mark.parametrize("mode", [{}, {"mode": "async", "staleness": 5}], ids=str)
def test_a_service_that_becomes_slow_passes_a_budget_by_an_epoch_at_most(graph, mode):
    settings = {
        "servers": 2,
        "intervals": 2,
        "eval_every": 0,
        "instance": "c5.large",
        "budget_usd": 3 * 0.085 / 3600,
    }  # 3 s
    with dorylus.Trainer(graph, dorylus.gcn(hidden=4), pool=SlowFromEpoch(6), epochs=400, **settings, **mode) as run:
        result = run.run().result()
        dearest = max(run._accounts._epochs_usd)
    assert result.stopped == "budget"
    assert result.bill.total_usd <= settings["budget_usd"] + float(dearest)


def test_what_a_run_has_used_only_grows_however_often_it_is_resumed(graph, tmp_path):
    """Also what was used by resuming it without training, and what came after the last checkpoint."""
    settings = {"epochs": 4, "instance": "c5.large", "run_dir": tmp_path / "run"}
    bills = [dorylus.train(graph, dorylus.gcn(hidden=4), **settings).bill]
    bills += [dorylus.resume(tmp_path / "run", graph, dorylus.gcn(hidden=4)).bill for _ in range(3)]
    hours_of = [{line.what: line.quantity for line in bill.lines()} for bill in bills]
    for before, after in pairwise(hours_of):
        assert all(after[what] >= amount for what, amount in before.items())
        assert sum(after.values()) > sum(before.values())


def test_functions_stay_on_the_bill_when_the_run_goes_on_without_them(tmp_path):
    settings = {"epochs": 4, "checkpoint_every": 1, "instance": "c5.large", "run_dir": tmp_path / "run"}
    settings["rematerialize"] = True  # as other tests do, which have exported the same programs
    with dorylus.Trainer(small(), model("gcn"), pool="processes", function_service="lambda-x86", **settings) as run:
        run.run(2)
        run._save()
    result = dorylus.resume(tmp_path / "run", small(), model("gcn"), pool="threads", function_service=None)
    requests = [line for line in result.bill.lines() if line.what.startswith("requests, lambda-x86")]
    assert sum(line.quantity for line in requests) > 0
    assert len(result.losses) == 4


def test_what_cannot_be_priced_is_refused_before_anything_is_written(graph, tmp_path):
    with pytest.raises(ConfigError, match=r"instance='.*' is unknown"):
        dorylus.train(graph, dorylus.gcn(hidden=4), instance="c5.huge", run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
