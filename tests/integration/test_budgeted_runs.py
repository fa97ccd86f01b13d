"""Runs with a budget: they stop before it is passed, saved, and go on with a larger one."""

import json

import pytest

import dorylus
from dorylus.errors import ConfigError
from dorylus.training.accounts import Accounts


@pytest.fixture(scope="module")
def graph():
    return dorylus.communities(num_vertices=300, num_classes=3, seed=0)


@pytest.fixture
def hours(monkeypatch):
    """Every look at the clock is an hour after the last: an epoch takes one, and so does what lies between two."""
    looks = iter(range(0, 10**9, 3600))
    wanted = Accounts.__init__

    def made(books, config):
        wanted(books, config, clock=lambda: float(next(looks)))

    monkeypatch.setattr(Accounts, "__init__", made)


EPOCH_USD = 2 * 0.085  # an hour in the epoch, an hour between it and the next


@pytest.mark.parametrize("settings", [{}, {"servers": 2, "intervals": 3, "mode": "async", "staleness": 2}])
def test_a_budget_is_never_passed_by_more_than_an_epochs_cost(graph, hours, settings):
    result = dorylus.train(graph, dorylus.gcn(hidden=4), epochs=50, budget_usd=2.0, instance="c5.large", **settings)
    assert result.stopped == "budget"
    assert 8 <= len(result.losses) <= 13
    assert result.bill.total_usd <= 2.0 + EPOCH_USD
    assert result.bill.total_usd == pytest.approx(float(sum(line.usd for line in result.bill.lines())))


def test_a_run_stopped_by_its_budget_goes_on_with_a_larger_one_to_the_same_weights(graph, hours, tmp_path):
    model = dorylus.gcn(hidden=4, dropout=0.5)
    whole = dorylus.train(graph, model, epochs=20)
    settings = {"epochs": 20, "instance": "c5.large", "run_dir": tmp_path / "run"}
    first = dorylus.train(graph, model, budget_usd=1.0, **settings)
    assert (first.stopped, len(first.losses) < 20) == ("budget", True)
    again = dorylus.resume(tmp_path / "run", graph, model)
    assert (again.stopped, len(again.losses)) == ("budget", len(first.losses))  # what was spent stays spent
    last = dorylus.resume(tmp_path / "run", graph, model, budget_usd=100.0)
    assert (last.stopped, last.losses) == ("epochs", whole.losses)
    assert last.bill.total_usd > 1.0
    kept = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert kept["bill"]["total_usd"] == last.bill.total_usd


def test_what_cannot_be_priced_is_refused_before_anything_is_written(graph, tmp_path):
    with pytest.raises(ConfigError, match="unknown instance type"):
        dorylus.train(graph, dorylus.gcn(hidden=4), instance="c5.huge", run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
