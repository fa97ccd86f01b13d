"""Functions behind a network of 200 Mbit/s, held to a share of a core and to their memory, as a real service does."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dorylus
from dorylus.functions.deploy.config import on_this_machine
from dorylus.functions.deploy.package import build
from functions_bench.limits import group_of_this_process
from functions_bench.runs import model, small

SETTINGS = {"servers": 2, "intervals": 3, "threads": 2, "epochs": 4, "eval_every": 0, "deadline_s": 120, "functions": 3}
TESTS = Path(__file__).parents[1]


def why_not():
    """Why this machine cannot run such functions; None if it can."""
    if sys.platform != "linux" or shutil.which("ip") is None or shutil.which("tc") is None:
        return "it needs Linux with iproute2"
    if group_of_this_process("memory") is None or group_of_this_process("cpu") is None:
        return "it needs control groups (version 1) for memory and cpu that may be written to"
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True).returncode:
        return "it needs root and the right to make namespaces"
    return None


pytestmark = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")


@pytest.fixture(scope="module")
def package():
    return build(on_this_machine())


def far_away(package, **options):
    words = ["unshare", "--net", "--mount", sys.executable, "-m", "functions_bench.far_away"]
    words += [str(package.path), json.dumps({**options, "settings": SETTINGS | options.get("settings", {})})]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(("requested", "used"), [("auto", "direct"), ("inline", "inline")])
def test_a_run_gives_the_losses_of_threads(package, requested, used):
    result = far_away(package, settings={"data_path": requested})
    expected = dorylus.train(
        small(), model("gcn"), **{name: SETTINGS[name] for name in SETTINGS if name != "functions"}
    )
    assert result["losses"] == pytest.approx(expected.losses, abs=1e-4)
    assert result["pool"]["data_path"] == used
    assert result["metered_periods"] > 0  # the kernel limited the functions to their share of a core
    assert result["bytes_to_us"] > result["pool"]["bytes_out"] > 0  # the tensors came through the slow network


def test_functions_without_the_memory_they_need_end_the_run_with_the_reason(package):
    # The stand-in of Lambda may notice the kill too late; its error is then only that the function is gone.
    errors = (far_away(package, memory_mb=24, cores=1.0, attempts=2)["error"] for _ in range(3))
    assert any("dorylus functions deploy --memory gives it more" in error for error in errors)
