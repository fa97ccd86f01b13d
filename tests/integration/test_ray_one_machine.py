"""Four servers on four Ray nodes of one machine, without any network but loopback."""

import tempfile

import pytest

import dorylus
from ray_bench.isolated import run_isolated, why_not
from ray_bench.runs import PIPE, furthest, model, small, told

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=why_not() or ""), pytest.mark.timeout(200)]


def test_a_run_gives_the_losses_and_weights_of_embedded_servers():
    with tempfile.TemporaryDirectory(prefix="rays-") as folder:  # a short name: sockets are made in it
        got = run_isolated("ray_bench.one_machine", folder, timeout_s=180)
    expected = told(dorylus.train(small(), model("gcn"), **(PIPE | {"servers": 4})))
    assert got["nodes"] == 4
    assert got["losses"] == pytest.approx(expected["losses"], abs=1e-4)
    assert got["losses"] == expected["losses"]  # to the last bit: it is the same sums in the same order
    assert got["test_accuracy"] == expected["test_accuracy"]
    assert furthest(got["weights"], expected["weights"]) == 0
