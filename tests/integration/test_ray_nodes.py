"""Training on three Ray nodes that share nothing but a network and a folder, and the doctor's view of them.

Each has a network namespace, an address and a Ray of its own; Ray requires a token. All runs are made on one cluster.
Further runs, which differ less from each other, are in tests/soak.
"""

import pytest

import dorylus
from ray_bench.isolated import run_isolated, why_not
from ray_bench.runs import KILLED, LOST, PIPE, furthest, model, small, summary

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=why_not() or ""), pytest.mark.timeout(480)]

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def on_ray_nodes(tmp_path_factory):
    """The results of all parts on three nodes."""
    parts = ("doctor_connected", "runs", "pool", "lost_driver", "doctor_disconnected")
    return run_isolated("ray_bench.three_nodes", str(tmp_path_factory.mktemp("shared")), *parts, timeout_s=450)


@pytest.fixture(scope="module")
def runs(on_ray_nodes):
    """The results of runs with servers on Ray."""
    return on_ray_nodes["runs"]


@pytest.fixture(scope="module")
def pool(on_ray_nodes):
    """The results of runs with dense tasks on Ray."""
    return on_ray_nodes["pool"]


def embedded(name, settings):
    return summary(dorylus.train(small(), model(name), **settings))


def test_a_run_gives_the_losses_of_embedded_servers(runs):
    expected = embedded("gcn", PIPE)
    assert runs["gcn"]["losses"] == pytest.approx(expected["losses"], abs=TOLERANCE)
    assert runs["gcn"]["losses"] == expected["losses"]  # bit-identical: the same sums in the same order
    assert runs["gcn"]["test_accuracy"] == expected["test_accuracy"]


def test_every_graph_server_has_a_node_to_itself(runs):
    assert runs["gcn"]["servers"] == runs["gcn"]["nodes"] == 3


def test_one_log_reports_all_servers(runs):
    assert runs["gcn"]["servers_of_spans"] == [0, 1, 2]
    servers = runs["gcn"]["server_reports"]
    assert [each["server"] for each in servers] == [0, 1, 2]
    assert len({each["host"] for each in servers}) == 3
    assert min(each["sent_bytes"] for each in servers) > 0
    assert min(each["peak_memory_bytes"] for each in servers) >= min(each["memory_bytes"] for each in servers) > 2**20


def test_a_killed_driver_leaves_no_server_and_its_run_resumes(on_ray_nodes):
    lost = on_ray_nodes["lost_driver"]
    assert lost["left"] == []
    assert 3 <= lost["resumed_after"] < LOST["epochs"]
    expected = embedded("gcn", LOST)
    assert furthest(lost["weights"], expected["weights"]) <= 1e-5


def test_a_killed_graph_server_changes_no_weight(runs):
    assert runs["killed"]["noted"] == ["fault", "recovered"]
    expected = embedded("gat", KILLED)
    assert furthest(runs["killed"]["weights"], expected["weights"]) <= 1e-5
    assert runs["killed"]["losses"] == expected["losses"]


def test_more_servers_than_there_is_room_for_are_refused_with_what_is_missing(runs):
    assert runs["too_big"]["error"].startswith("ConfigError: 50 graph servers of 1 cores")
    assert "3 nodes with 6 cores" in runs["too_big"]["error"]
    assert runs["too_big"]["seconds"] < 30


def test_dense_tasks_on_nodes_give_the_losses_of_threads(pool):
    assert pool["edges"]["ray"] == pytest.approx(pool["edges"]["threads"], abs=TOLERANCE)


def test_dense_tasks_run_on_more_than_one_node(pool):
    assert pool["nodes"] > 1


def test_a_run_reports_its_dense_tasks(pool):
    stats = pool["edges"]["pool"]
    assert stats["invocations"] == stats["calls"] > 0
    assert min(stats["bytes_in"], stats["bytes_out"]) > 0


def test_an_error_of_a_body_arrives_with_its_own_type_and_message(pool):
    assert pool["refuses"].startswith("TrainingError: apply_edge of layer 0 (Edges) failed on interval")
    assert pool["refuses"].endswith("in epoch 1: ArithmeticError: no edge of mine")


def test_a_dense_task_whose_process_dies_is_retried_and_nothing_is_lost(pool):
    assert pool["dies"]["pool"]["relaunches"] >= 1
    assert pool["dies"]["ray"] == pytest.approx(pool["dies"]["threads"], abs=TOLERANCE)


def test_while_servers_hold_every_core_the_error_says_at_once_what_is_missing(pool):
    assert pool["without_room"].startswith("ConfigError: pool='ray' runs each dense task on one core, and no node has")
    assert "3 nodes with 6 cores, 6 of them reserved" in pool["without_room"]


def test_while_other_programs_use_every_core_calls_do_not_wait_forever(pool):
    assert pool["while_others_work"].startswith("Unavailable: Ray has answered none of 1 dense tasks for 1 s")
    assert "6 cores, 0 of them reserved" in pool["while_others_work"]


def lines(output):
    return {
        name: (status, rest) for status, name, rest in (line.split(maxsplit=2) for line in output.splitlines()[:-1])
    }


def test_the_doctor_finds_no_fault_on_nodes_that_reach_each_other(on_ray_nodes):
    code, output = on_ray_nodes["doctor_connected"]
    found = lines(output)
    assert code == 0, output
    assert {name: status for name, (status, _) in found.items() if name not in ("memory", "clock")} == dict.fromkeys(
        ["ray", "nodes", "versions", "cores", "network", "speed", "token", "store"], "ok"
    )
    assert found["nodes"][1] == "3 alive, and all answer"
    assert "room for 6 graph servers of 1 thread, 3 on nodes" in found["cores"][1]
    assert found["network"][1] == "all 3 nodes reach each other"


def test_nodes_that_do_not_reach_each_other_are_named(on_ray_nodes):
    code, output = on_ray_nodes["doctor_disconnected"]["report"]
    one, other = on_ray_nodes["doctor_disconnected"]["addresses"][1:]
    found = lines(output)
    assert code == 1, output
    assert {name for name, (status, _) in found.items() if status == "fail"} == {"network", "store"}
    assert f"2 of 9 connections fail: {one} → {other}; {other} → {one} (server" in found["network"][1]
    assert "let TCP through" in found["network"][1]
    assert "is not a store" in found["store"][1]


def test_nothing_is_left_behind(on_ray_nodes):
    assert on_ray_nodes["runs"]["left"] == []
    assert on_ray_nodes["left_by_nodes"] == []
