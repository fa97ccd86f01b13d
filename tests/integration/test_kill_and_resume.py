"""A training process killed with SIGKILL and resumed ends with the weights of an undisturbed one."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dorylus
from dorylus.report import find_runs

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


GRAPH = "communities:num_vertices=800,num_classes=4,seed=3"
SETTINGS = {"epochs": 90, "eval_every": 1, "patience": 90, "lr": 1.0, "checkpoint_every": 7, "threads": 1}


def test_a_killed_run_that_is_resumed_has_the_same_best_epoch_and_its_weights(tmp_path: Path) -> None:
    flags = [word for name, value in SETTINGS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "dorylus.cli", "train", GRAPH, *flags, "--run-dir", "killed", "--quiet"]
    process = subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        while not list(tmp_path.glob("killed/checkpoints/epoch-*[1-9]")) and process.poll() is None:
            time.sleep(0.01)
        assert find_runs(tmp_path)[0].state == "running"
    finally:
        process.kill()
        process.wait()
    (killed,) = find_runs(tmp_path)
    assert (killed.state, killed.remark) == ("crashed", "its process was killed")
    assert 0 < killed.epochs < SETTINGS["epochs"], "a run that had ended was killed, which proves nothing"

    resumed = dorylus.resume(tmp_path / "killed")
    whole = dorylus.train(dorylus.load(GRAPH), dorylus.gcn(), run_dir=tmp_path / "whole", **SETTINGS)
    assert (resumed.best_epoch, resumed.best_score) == (whole.best_epoch, whole.best_score)
    assert whole.best_epoch < SETTINGS["epochs"], "the best epoch is the last one, which proves nothing"
    assert resumed.metrics == whole.metrics
    assert whole.val_accuracy == whole.best_score
    np.testing.assert_array_equal(resumed.predict(), whole.predict())
    graph, model = dorylus.load(GRAPH), dorylus.gcn()
    for folder in ("killed", "whole"):
        kept = dorylus.predict_from(tmp_path / folder, graph=graph, model=model)
        np.testing.assert_array_equal(kept, whole.predict())
    assert {each.state for each in find_runs(tmp_path)} == {"finished"}
