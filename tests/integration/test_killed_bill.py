"""A run that is killed with SIGKILL again and again has all that it used on its bill."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dorylus.cost import PriceBook
from dorylus.runs import read_log

TESTS = Path(__file__).parents[1]


def killed_run(
    run_dir: Path, *more: str, kills: int, task_s: float, epochs: int, timeout_s: float
) -> tuple[float, float, float]:
    """Seconds on the bill, seconds measured from outside, and seconds of an epoch, of a run killed so often."""
    command = [sys.executable, "-m", "crash_bench.killed_runs", run_dir, str(kills), str(task_s), str(epochs), *more]
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, done.stderr
    measured_s = json.loads(done.stdout)["measured_s"]
    bill = json.loads((run_dir / "metrics.json").read_text())["bill"]
    billed_s = bill["total_usd"] / float(PriceBook.load().instance("c5.large").usd_per_hour) * 3600
    epochs_s = [record["seconds"] for record in read_log(run_dir / "log.jsonl") if record["kind"] == "epoch"]
    return billed_s, measured_s, float(np.median(epochs_s))


def test_after_three_kills_the_bill_differs_from_the_time_measured_outside_by_less_than_an_epoch(
    tmp_path: Path,
) -> None:
    billed_s, measured_s, epoch_s = killed_run(tmp_path / "run", kills=3, task_s=0.03, epochs=6, timeout_s=120)
    assert epoch_s > 0.25
    assert billed_s == pytest.approx(measured_s, abs=epoch_s)
