"""As tests/integration/test_ray_nodes.py: other modes of training on three nodes, and a node that is lost for good."""

import pytest

import dorylus
from ray_bench.isolated import run_isolated, why_not
from ray_bench.runs import ASYNC, FUNCTIONS, LOST, PIPE, model, small
from ray_bench.runs import told as told_of

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=why_not() or ""), pytest.mark.timeout(480)]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What came of all runs."""
    folder = str(tmp_path_factory.mktemp("shared"))
    return run_isolated("ray_bench.three_nodes", folder, "more_runs", "lost_node", timeout_s=450)


def embedded(name, settings):
    return told_of(dorylus.train(small(), model(name), **settings))


def test_every_server_has_functions_of_its_own_and_one_table_tells_of_them(told):
    here = {name: value for name, value in FUNCTIONS.items() if name not in ("pool", "functions")}
    run = told["more_runs"]["functions"]
    assert run["losses"] == pytest.approx(embedded("gcn", here)["losses"], abs=1e-4)
    assert run["pool"]["functions"] == 2
    assert run["pool"]["invocations"] > 10


def test_bounded_staleness_converges(told):
    losses = told["more_runs"]["async"]["losses"]
    expected = embedded("gcn", PIPE | {"epochs": ASYNC["epochs"]})
    assert losses[-1] < 0.5 * losses[0]
    assert told["more_runs"]["async"]["test_accuracy"] == pytest.approx(expected["test_accuracy"], abs=0.05)


def test_an_elastic_run_goes_on_without_a_node_that_is_lost_for_good(told):
    assert told["lost_node"]["servers"] == 2
    assert told["lost_node"]["losses"] == pytest.approx(embedded("gcn", LOST)["losses"], abs=1e-4)


def test_nothing_is_left_behind(told):
    assert told["more_runs"]["left"] == []
    assert told["left_by_nodes"] == []
