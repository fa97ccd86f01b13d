"""As tests/integration/test_ray_nodes.py: other modes of training on three nodes, and a node that is lost for good."""

import pytest

import dorylus
from ray_bench.isolated import run_isolated, why_not
from ray_bench.runs import ASYNC, FUNCTIONS, LOST, PIPE, model, small, summary

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=why_not() or ""), pytest.mark.timeout(480)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The results of all runs."""
    folder = str(tmp_path_factory.mktemp("shared"))
    return run_isolated("ray_bench.three_nodes", folder, "more_runs", "lost_node", timeout_s=450)


def embedded(name, settings):
    return summary(dorylus.train(small(), model(name), **settings))


def test_every_server_has_its_own_functions_and_one_table_counts_all_of_them(results):
    here = {name: value for name, value in FUNCTIONS.items() if name not in ("pool", "functions")}
    run = results["more_runs"]["functions"]
    assert run["losses"] == pytest.approx(embedded("gcn", here)["losses"], abs=1e-4)
    assert run["pool"]["functions"] == 2
    assert run["pool"]["invocations"] > 10


def test_bounded_staleness_converges(results):
    losses = results["more_runs"]["async"]["losses"]
    expected = embedded("gcn", PIPE | {"epochs": ASYNC["epochs"]})
    assert losses[-1] < 0.5 * losses[0]
    assert results["more_runs"]["async"]["test_accuracy"] == pytest.approx(expected["test_accuracy"], abs=0.05)


def test_an_elastic_run_goes_on_without_a_node_that_is_lost_for_good(results):
    assert results["lost_node"]["servers"] == 2
    assert results["lost_node"]["losses"] == pytest.approx(embedded("gcn", LOST)["losses"], abs=1e-4)


def test_nothing_is_left_behind(results):
    assert results["more_runs"]["left"] == []
    assert results["left_by_nodes"] == []
