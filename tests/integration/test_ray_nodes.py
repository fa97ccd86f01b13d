"""Training on three Ray nodes that share nothing but a network and a folder.

Each has a network namespace, an address and a Ray of its own; Ray asks for a token. All runs are made on one cluster.
"""

import pytest

import dorylus
from ray_bench.isolated import run_isolated, why_not
from ray_bench.runs import ASYNC, FUNCTIONS, LOST, PIPE, furthest, model, small
from ray_bench.runs import told as told_of

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=why_not() or ""), pytest.mark.timeout(480)]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What came of all runs."""
    return run_isolated("ray_bench.three_nodes", str(tmp_path_factory.mktemp("shared")), timeout_s=450)


def embedded(name, settings):
    return told_of(dorylus.train(small(), model(name), **settings))


def test_a_run_gives_the_losses_of_embedded_servers(told):
    expected = embedded("gcn", PIPE)
    assert told["gcn"]["losses"] == pytest.approx(expected["losses"], abs=1e-4)
    assert told["gcn"]["losses"] == expected["losses"]  # to the last bit: it is the same sums in the same order
    assert told["gcn"]["test_accuracy"] == expected["test_accuracy"]


def test_every_graph_server_has_a_node_to_itself(told):
    assert told["gcn"]["servers"] == told["gcn"]["nodes"] == 3


def test_one_log_tells_of_all_servers(told):
    assert told["gcn"]["servers_of_spans"] == [0, 1, 2]
    servers = told["gcn"]["told_by_servers"]
    assert [each["server"] for each in servers] == [0, 1, 2]
    assert len({each["host"] for each in servers}) == 3
    assert min(each["sent_bytes"] for each in servers) > 0
    assert min(each["peak_memory_bytes"] for each in servers) >= min(each["memory_bytes"] for each in servers) > 2**20


def test_every_server_has_functions_of_its_own_and_one_table_tells_of_them(told):
    here = {name: value for name, value in FUNCTIONS.items() if name not in ("pool", "functions")}
    assert told["functions"]["losses"] == pytest.approx(embedded("gcn", here)["losses"], abs=1e-4)
    assert told["functions"]["pool"]["functions"] == 2
    assert told["functions"]["pool"]["invocations"] > 10


def test_a_lost_driver_leaves_no_server_and_a_run_that_goes_on(told):
    assert told["lost_driver"]["left"] == []
    assert 3 <= told["lost_driver"]["resumed_after"] < LOST["epochs"]
    expected = embedded("gcn", LOST)
    assert furthest(told["lost_driver"]["weights"], expected["weights"]) <= 1e-5


def test_an_elastic_run_goes_on_without_a_node_that_is_lost_for_good(told):
    assert told["lost_node"]["servers"] == 2
    assert told["lost_node"]["losses"] == pytest.approx(embedded("gcn", LOST)["losses"], abs=1e-4)


def test_bounded_staleness_converges(told):
    losses = told["async"]["losses"]
    expected = embedded("gcn", PIPE | {"epochs": ASYNC["epochs"]})
    assert losses[-1] < 0.5 * losses[0]
    assert told["async"]["test_accuracy"] == pytest.approx(expected["test_accuracy"], abs=0.05)


def test_a_killed_graph_server_changes_no_weight(told):
    assert told["killed"]["noted"] == ["fault", "recovered"]
    expected = embedded("gat", PIPE)
    assert furthest(told["killed"]["weights"], expected["weights"]) <= 1e-5
    assert told["killed"]["losses"] == expected["losses"]


def test_more_servers_than_there_is_room_for_are_refused_with_what_is_missing(told):
    assert told["too_big"]["error"].startswith("ConfigError: 50 graph servers of 1 cores")
    assert "3 nodes with 6 cores" in told["too_big"]["error"]
    assert told["too_big"]["seconds"] < 30


def test_nothing_is_left_behind(told):
    assert told["left"] == []
    assert told["left_by_nodes"] == []
