"""Ray on one machine: four servers on four nodes with loopback only, and Ray started as docs/cluster.md says."""

import socket
import tempfile

import pytest

import dorylus
from ray_bench.documented_start import listeners
from ray_bench.isolated import run_isolated, why_not
from ray_bench.runs import PIPE, furthest, model, small, summary

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=why_not() or ""), pytest.mark.timeout(200)]


def test_a_run_gives_the_losses_and_weights_of_embedded_servers():
    with tempfile.TemporaryDirectory(prefix="rays-") as folder:  # a short name: Ray puts sockets in it
        got = run_isolated("ray_bench.one_machine", folder, timeout_s=180)
    expected = summary(dorylus.train(small(), model("gcn"), **(PIPE | {"servers": 4})))
    assert got["nodes"] == 4
    assert got["losses"] == pytest.approx(expected["losses"], abs=1e-4)
    assert got["losses"] == expected["losses"]  # bit-identical: the same sums in the same order
    assert got["test_accuracy"] == expected["test_accuracy"]
    assert furthest(got["weights"], expected["weights"]) == 0


def test_ray_started_as_documented_for_one_machine_listens_on_loopback_only():
    with tempfile.TemporaryDirectory(prefix="rays-") as folder:
        found = run_isolated("ray_bench.documented_start", folder, timeout_s=120)["listeners"]
    assert {"gcs_server", "raylet", "ray::"} == {
        part for part in ("gcs_server", "raylet", "ray::") if any(part in each["of"] for each in found)
    }
    assert [each for each in found if not each["loopback"]] == []


def test_a_socket_that_listens_on_all_addresses_is_distinguished_from_one_on_loopback():
    sockets = [socket.create_server((host, 0)) for host in ("127.0.0.1", "0.0.0.0")]
    ports = [each.getsockname()[1] for each in sockets]
    loopback = {each["port"]: each["loopback"] for each in listeners()}
    for each in sockets:
        each.close()
    assert [loopback[port] for port in ports] == [True, False]
