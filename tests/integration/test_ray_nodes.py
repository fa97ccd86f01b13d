"""Training on three Ray nodes that share nothing but a network and a folder.

Each has a network namespace, an address and a Ray of its own; Ray asks for a token. All runs are made on one cluster.
"""

import pytest

import dorylus
from ray_bench.isolated import run_isolated, why_not
from ray_bench.runs import ASYNC, PIPE, furthest, model, small
from ray_bench.runs import told as told_of

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=why_not() or ""), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What came of all runs."""
    return run_isolated("ray_bench.three_nodes", str(tmp_path_factory.mktemp("shared")), timeout_s=280)


def embedded(name, settings):
    return told_of(dorylus.train(small(), model(name), **settings))


def test_a_run_gives_the_losses_of_embedded_servers(told):
    expected = embedded("gcn", PIPE)
    assert told["gcn"]["losses"] == pytest.approx(expected["losses"], abs=1e-4)
    assert told["gcn"]["losses"] == expected["losses"]  # to the last bit: it is the same sums in the same order
    assert told["gcn"]["test_accuracy"] == expected["test_accuracy"]


def test_every_graph_server_has_a_node_to_itself(told):
    assert told["gcn"]["servers"] == told["gcn"]["nodes"] == 3


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
