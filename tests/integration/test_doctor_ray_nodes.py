"""Parts of the doctor of a Ray cluster: probes, a survey that may hang or die, an address without a listener.

The doctor on real nodes is in test_ray_nodes.py, with the other tests that need them.
"""

import socket
import subprocess
import sys
from contextlib import closing

import pytest

from dorylus.cli.doctor import cluster
from dorylus.cli.doctor.probe import Probe
from dorylus.wire.connection import new_secret
from ray_bench.isolated import why_not

HOST = "127.0.0.1"
LIMIT_S = 90.0


@pytest.fixture
def probes():
    made = [Probe(), Probe()]
    yield made
    for each in made:
        each.close()


def listening(probes, secret):
    return {number: (HOST, each.listen(HOST, secret, number)) for number, each in enumerate(probes)}


def unused_address():
    with closing(socket.create_server((HOST, 0))) as gone:
        return HOST, gone.getsockname()[1]


def test_probes_reach_each_other_and_themselves(probes):
    secret = new_secret()
    addresses = listening(probes, secret)
    for me, each in enumerate(probes):
        came = each.dial(addresses, secret, me)
        assert sorted(came) == [0, 1]
        assert all(pair["round_trip_s"] > 0 for pair in came.values()), came
        speeds = each.send([1, 0])
        assert list(speeds) == [1, 0]
        assert None not in speeds.values()


def test_a_probe_that_is_not_there_or_has_another_secret_is_reported_with_the_reason(probes):
    secret = new_secret()
    addresses = {0: listening(probes, new_secret())[0], 1: unused_address()}
    came = probes[1].dial(addresses, secret, 1)
    assert "is not server 0 of this run" in came[0]["error"]
    assert "cannot be reached" in came[1]["error"]
    assert probes[1].send([0, 1]) == {}


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Runs the survey with a program in place of its own."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(program):
        (tmp_path / "asks.py").write_text(program)
        return cluster.collect("", "", module="asks")

    return run


def test_a_survey_that_hangs_is_not_waited_for(child, monkeypatch):
    monkeypatch.setattr(cluster, "START_S", 0.5)
    assert child("import time; time.sleep(600)").trouble == "no word of our own within 0.5 s"


def test_a_survey_that_dies_is_reported_with_the_last_line_of_its_stderr(child):
    report = child("import os, sys; print('no shared memory', file=sys.stderr, flush=True); os.abort()")
    assert report.trouble.endswith("broke off, with no word of our own: no shared memory")


@pytest.mark.skipif(why_not() == "it needs Ray", reason="it needs Ray")
def test_an_address_without_a_listener_is_reported_at_once():
    host, port = unused_address()
    command = [sys.executable, "-m", "dorylus.cli", "doctor", "--cluster", "ray", "--address", f"{host}:{port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"there is no Ray cluster at {host}:{port}" in done.stdout
    assert "ray start --head --node-ip-address" in done.stdout
