"""The doctor on real nodes: three of Ray, each in a network namespace, two of which are then kept from each other.

Run as a program, in an isolated place, this file makes the nodes and asks the doctor.
"""

import json
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from dorylus.cli.cluster import taking
from dorylus.cli.cluster.probe import Probe
from dorylus.wire.line import new_secret
from ray_bench.isolated import run_isolated, settle_in, why_not
from ray_bench.nodes import RayNodes
from ray_bench.runs import stored

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


def nobody():
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


def test_a_probe_that_is_not_there_or_knows_another_secret_is_told_with_the_reason(probes):
    secret = new_secret()
    addresses = {0: listening(probes, new_secret())[0], 1: nobody()}
    came = probes[1].dial(addresses, secret, 1)
    assert "is not server 0 of this run" in came[0]["error"]
    assert "cannot be reached" in came[1]["error"]
    assert probes[1].send([0, 1]) == {}


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Has a program take the survey."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(program):
        (tmp_path / "asks.py").write_text(program)
        return taking.taken("", "", module="asks")

    return run


def test_a_survey_that_hangs_is_not_waited_for(child, monkeypatch):
    monkeypatch.setattr(taking, "START_S", 0.5)
    assert child("import time; time.sleep(600)").trouble == "no word of our own within 0.5 s"


def test_a_survey_that_dies_is_told_with_its_last_words(child):
    told = child("import os, sys; print('no shared memory', file=sys.stderr, flush=True); os.abort()")
    assert told.trouble.endswith("broke off, with no word of our own: no shared memory")


@pytest.mark.skipif(why_not() == "it needs Ray", reason="it needs Ray")
def test_an_address_where_nobody_listens_is_told_at_once():
    host, port = nobody()
    command = [sys.executable, "-m", "dorylus.cli", "doctor", "--cluster", "ray", "--address", f"{host}:{port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"there is no Ray cluster at {host}:{port}" in done.stdout
    assert "ray start --head --node-ip-address" in done.stdout


@pytest.fixture(scope="module")
def on_nodes(tmp_path_factory):
    """What the doctor says of the nodes: of all, and once two of them do not reach each other."""
    if why_not() is not None:
        pytest.skip(why_not())
    return run_isolated("integration.test_doctor_ray_nodes", str(tmp_path_factory.mktemp("shared")), timeout_s=200)


def lines(said):
    return {name: (status, rest) for status, name, rest in (line.split(maxsplit=2) for line in said.splitlines()[:-1])}


def test_all_is_well_on_nodes_that_reach_each_other(on_nodes):
    code, said = on_nodes["well"]
    found = lines(said)
    assert code == 0, said
    assert {name: status for name, (status, _) in found.items() if name not in ("memory", "clock")} == dict.fromkeys(
        ["ray", "nodes", "versions", "cores", "network", "speed", "token", "store"], "ok"
    )
    assert found["nodes"][1] == "3 alive, and all answer"
    assert "room for 6 graph servers of 1 thread, 3 on nodes" in found["cores"][1]
    assert found["network"][1] == "all 3 nodes reach each other"


def test_nodes_that_do_not_reach_each_other_are_named(on_nodes):
    code, said = on_nodes["apart"]
    one, other = on_nodes["addresses"][1:]
    found = lines(said)
    assert code == 1, said
    assert {name for name, (status, _) in found.items() if status == "fail"} == {"network", "store"}
    assert f"2 of 9 ways are shut: {one} → {other}; {other} → {one} (server" in found["network"][1]
    assert "let TCP through" in found["network"][1]
    assert "is not a store" in found["store"][1]


def main(folder):
    """Make the nodes and ask; what was said."""
    settle_in()
    with RayNodes(3) as nodes:
        well = asked(nodes, str(stored(folder).store))
        addresses = nodes.network.addresses
        for me, peer in ((1, 2), (2, 1)):
            words = nodes.network.command(me, ["ip", "route", "add", "prohibit", addresses[peer]])
            subprocess.run(words, check=True)
        return {"addresses": addresses, "well": well, "apart": asked(nodes, str(folder))}


def asked(nodes, store):
    driver = nodes.drive("dorylus.cli", "doctor", "--cluster", "ray", "--threads", "1", "--store", store)
    said, _ = driver.communicate(timeout=LIMIT_S)
    return driver.returncode, said


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
