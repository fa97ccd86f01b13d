"""A training process killed with SIGKILL and resumed ends with the weights of one that was left alone."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("model", ["gcn"])
def test_a_killed_run_resumes_to_bit_identical_weights(model: str) -> None:
    command = [sys.executable, "-m", "benchmarks.kill_resume", "--kills", "3", "--model", model]
    done = subprocess.run(
        [*command, "--epochs", "400", "--vertices", "1500"], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    moments = re.findall(r"^killed after .* at (.*): identical$", done.stdout, re.MULTILINE)
    assert len(moments) == 3
    assert "epoch-000400" not in moments, "a run that had ended was killed, which proves nothing"
    assert "3 of 3 resumed runs end with bit-identical weights" in done.stdout
