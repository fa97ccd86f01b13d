"""A training process killed with SIGKILL and resumed ends with the weights of an undisturbed one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_a_killed_run_resumes_to_bit_identical_weights(kills: int) -> None:
    command = [sys.executable, "-m", "benchmarks.kill_resume", "--kills", str(kills), "--model", "gcn"]
    done = subprocess.run(
        [*command, "--epochs", "200", "--vertices", "1500"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # other tests have the other cores
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    moments = re.findall(r"^killed after .* at (.*): identical$", done.stdout, re.MULTILINE)
    assert len(moments) == kills
    assert "epoch-000200" not in moments, "a run that had ended was killed, which proves nothing"
    assert f"{kills} of {kills} resumed runs end with bit-identical weights" in done.stdout
