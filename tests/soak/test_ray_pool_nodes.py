"""Runs whose dense tasks are Ray's, on two nodes in namespaces of this machine; all of them on one cluster."""

import pytest

from ray_bench.isolated import run_isolated, why_not

LIMIT_S = 200.0
TOLERANCE = 1e-4

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What came of all runs."""
    return run_isolated("ray_bench.pool_checks", str(tmp_path_factory.mktemp("pool")), timeout_s=LIMIT_S)


@pytest.mark.parametrize("name", ["gcn", "gat", "edges", "unfused", "servers"])
def test_a_run_gives_the_losses_of_threads(told, name):
    assert told[name]["ray"] == pytest.approx(told[name]["threads"], abs=TOLERANCE)


def test_tasks_run_on_every_node(told):
    assert told["nodes"] == 2


@pytest.mark.parametrize("name", ["edges", "servers"])
def test_a_run_tells_what_its_tasks_were(told, name):
    pool = told[name]["pool"]
    assert pool["invocations"] == pool["calls"] > 0
    assert min(pool["bytes_in"], pool["bytes_out"]) > 0


def test_an_error_of_a_body_arrives_in_the_words_of_whoever_wrote_it(told):
    assert told["refuses"].startswith("TrainingError: apply_edge of layer 0 (Edges) failed on interval")
    assert told["refuses"].endswith("in epoch 1: ArithmeticError: no edge of mine")


def test_a_task_whose_process_dies_is_tried_again_and_nothing_is_lost(told):
    assert told["dies"]["pool"]["relaunches"] >= 1
    assert told["dies"]["ray"] == pytest.approx(told["dies"]["threads"], abs=TOLERANCE)


def test_the_pool_keeps_the_contract_of_pools(told):
    assert told["contract"] == 0


def test_where_servers_hold_every_core_it_is_said_at_once_what_is_missing(told):
    assert told["without_room"].startswith('ConfigError: pool="ray" runs each dense task on one core, and no node has')
    assert "2 nodes with 4 cores, 4 of them reserved" in told["without_room"]


def test_where_others_have_every_core_calls_do_not_wait_for_ever(told):
    assert told["while_others_work"].startswith("Unavailable: Ray has answered none of 1 dense tasks for 1 s")
    assert "4 cores, 0 of them reserved" in told["while_others_work"]
