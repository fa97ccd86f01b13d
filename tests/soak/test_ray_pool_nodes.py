"""Runs with dense tasks on Ray, on two nodes in namespaces of this machine; all runs use one cluster."""

import pytest

from ray_bench.isolated import run_isolated, why_not

LIMIT_S = 200.0
TOLERANCE = 1e-4

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The results of all runs."""
    return run_isolated("ray_bench.pool_checks", str(tmp_path_factory.mktemp("pool")), timeout_s=LIMIT_S)


@pytest.mark.parametrize("name", ["gcn", "gat", "edges", "unfused", "servers"])
def test_a_run_gives_the_losses_of_threads(results, name):
    assert results[name]["ray"] == pytest.approx(results[name]["threads"], abs=TOLERANCE)


def test_tasks_run_on_every_node(results):
    assert results["nodes"] == 2


@pytest.mark.parametrize("name", ["edges", "servers"])
def test_a_run_reports_its_tasks(results, name):
    pool = results[name]["pool"]
    assert pool["invocations"] == pool["calls"] > 0
    assert min(pool["bytes_in"], pool["bytes_out"]) > 0


def test_an_error_of_a_body_arrives_with_its_own_type_and_message(results):
    assert results["refuses"].startswith("TrainingError: apply_edge of layer 0 (Edges) failed on interval")
    assert results["refuses"].endswith("in epoch 1: ArithmeticError: no edge of mine")


def test_a_task_whose_process_dies_is_retried_and_nothing_is_lost(results):
    assert results["dies"]["pool"]["relaunches"] >= 1
    assert results["dies"]["ray"] == pytest.approx(results["dies"]["threads"], abs=TOLERANCE)


def test_the_pool_keeps_the_contract_of_pools(results):
    assert results["contract"] == 0


def test_while_servers_hold_every_core_the_error_says_at_once_what_is_missing(results):
    assert results["without_room"].startswith(
        "ConfigError: pool='ray' runs each dense task on one core, and no node has"
    )
    assert "2 nodes with 4 cores, 4 of them reserved" in results["without_room"]


def test_while_other_programs_use_every_core_calls_do_not_wait_forever(results):
    assert results["while_others_work"].startswith("Unavailable: Ray has answered none of 1 dense tasks for 1 s")
    assert "4 cores, 0 of them reserved" in results["while_others_work"]
