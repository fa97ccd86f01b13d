"""Real runs of the program, from the command line to the files they leave."""

import json
import signal
import subprocess
import sys
import time
import tomllib

import numpy as np
import pytest

import dorylus
from dorylus.cli import main

GRAPH = "communities:num_vertices=2000,num_classes=4,num_features=16,average_degree=8"


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Runs the program in an empty folder, expects exit code 0 and returns its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert not end.value.code, err
        return out

    return call


def records(folder, kind):
    """The records of one kind in a run's log."""
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def weights(folder, epoch):
    """The bytes of the weights saved after an epoch."""
    return (folder / "checkpoints" / f"epoch-{epoch:06d}" / "weights.safetensors").read_bytes()


def test_training_prints_its_progress_and_leaves_a_run_folder(run, tmp_path):
    out = run("train", GRAPH, "--epochs", 5, "--threads", 1, "--eval-every", 2, "--run-dir", "here")
    assert "epoch 5/5" in out
    assert "accuracy" in out
    assert "epoch" in out
    folder = tmp_path / "here"
    assert {"run.toml", "log.jsonl", "checkpoints", "metrics.json"} <= {path.name for path in folder.iterdir()}
    config = tomllib.loads((folder / "run.toml").read_text())
    assert config["graph"]["source"] == GRAPH
    assert config["model"]["name"] == "gcn"
    assert (config["training"]["epochs"], config["training"]["lr"]) == (5, 0.01)  # given, and resolved
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["epochs"] == 5
    assert 0 <= metrics["test_accuracy"] <= 1
    assert f"{100 * metrics['test_accuracy']:.2f}" in out
    assert [record["epoch"] for record in records(folder, "evaluation")] == [2, 4]
    assert len(records(folder, "epoch")) == 5


def test_a_run_without_a_named_folder_gets_one(run, tmp_path):
    run("train", "ring", "--epochs", 1, "--threads", 1, "--quiet")
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("ring-gcn-")
    assert (folder / "metrics.json").exists()


@pytest.mark.parametrize("model", ["gcn", "gat", "sage", "gin"])
def test_every_model_learns_a_graph_of_communities(run, tmp_path, model):
    run("train", GRAPH, "--model", model, "--epochs", 40, "--threads", 1, "--run-dir", "r", "--quiet")
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    assert metrics["test_accuracy"] > 0.5  # a guess is right once in four
    losses = [record["loss"] for record in records(tmp_path / "r", "epoch")]
    assert losses[-1] < losses[0]


def test_the_settings_of_a_run_reproduce_it(run, tmp_path):
    run("train", GRAPH, "--epochs", 4, "--threads", 1, "--lr", 0.02, "--run-dir", "first", "--quiet")
    run("train", "--config", "first/run.toml", "--run-dir", "second", "--quiet")
    assert weights(tmp_path / "first", 4) == weights(tmp_path / "second", 4)


def test_a_resumed_run_ends_as_an_uninterrupted_one_to_the_last_bit(run, tmp_path):
    flags = ["--epochs", 10, "--checkpoint-every", 4, "--threads", 2, "--intervals", 5, "--quiet"]
    run("train", GRAPH, *flags, "--run-dir", "whole")
    run("train", GRAPH, *flags, "--run-dir", "cut")
    (tmp_path / "cut" / "metrics.json").unlink()
    for path in (
        tmp_path / "cut" / "checkpoints" / "epoch-000010"
    ).iterdir():  # as if the run had not reached this epoch
        path.unlink()
    (tmp_path / "cut" / "checkpoints" / "epoch-000010").rmdir()
    run("resume", "cut", "--quiet")
    assert weights(tmp_path / "whole", 10) == weights(tmp_path / "cut", 10)
    assert records(tmp_path / "cut", "run")[-1]["resumed_from"] == 8
    first, second = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("whole", "cut"))
    assert first["test_accuracy"] == second["test_accuracy"]


def heed_ctrl_c():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_saves_prints_how_to_resume_and_the_resumed_run_is_the_same(run, tmp_path):
    epochs = 250
    flags = [GRAPH, "--epochs", str(epochs), "--eval-every", "0", "--threads", "1", "--checkpoint-every", "0"]
    command = [sys.executable, "-m", "dorylus.cli", "train", *flags, "--run-dir", "cut"]
    # The tests may run where Ctrl-C is ignored (a background job), and children inherit that.
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "preexec_fn": heed_ctrl_c}
    process = subprocess.Popen(command, cwd=tmp_path, **pipes)
    try:
        wait_for(lambda: (tmp_path / "cut" / "log.jsonl").exists() and len(records(tmp_path / "cut", "epoch")) >= 3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, err
    assert "dorylus resume cut" in err
    assert "Traceback" not in err
    (saved,) = (tmp_path / "cut" / "checkpoints").iterdir()
    assert 3 <= int(saved.name.removeprefix("epoch-")) < epochs
    assert records(tmp_path / "cut", "stop")[-1]["reason"] == "interrupted"
    run("resume", "cut", "--quiet")
    run("train", *flags, "--run-dir", "whole", "--quiet")
    assert weights(tmp_path / "cut", epochs) == weights(tmp_path / "whole", epochs)


def wait_for(condition, deadline_s=100.0):
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.02)


def test_patience_and_target_end_a_run_early(run, tmp_path):
    common = [GRAPH, "--epochs", 200, "--eval-every", 1, "--threads", 1, "--quiet"]
    run("train", *common, "--patience", 3, "--lr", 0.2, "--run-dir", "patient")
    run("train", *common, "--target-accuracy", 0.4, "--run-dir", "content")
    patient, content = (records(tmp_path / name, "stop")[-1] for name in ("patient", "content"))
    assert patient["reason"] == "patience"
    scores = [record["val_accuracy"] for record in records(tmp_path / "patient", "evaluation")]
    assert len(scores) == patient["epoch"]
    assert scores.index(max(scores)) == len(scores) - 1 - 3
    assert content["reason"] == "target_accuracy"
    scores = [record["val_accuracy"] for record in records(tmp_path / "content", "evaluation")]
    assert scores[-1] >= 0.4 > max(scores[:-1], default=0)


def test_keep_best_keeps_the_best_weights(run, tmp_path):
    flags = [GRAPH, "--epochs", 30, "--eval-every", 1, "--lr", 1.0, "--threads", 1, "--quiet", "--keep", "best"]
    run("train", *flags, "--run-dir", "r")
    scores = [record["val_accuracy"] for record in records(tmp_path / "r", "evaluation")]
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    assert metrics["val_accuracy"] == pytest.approx(max(scores), abs=1e-6)
    assert max(scores) > scores[-1]  # else the test proves nothing
    run("predict", "r", "--output", "classes.npy")
    graph = dorylus.load(GRAPH)
    right = np.load(tmp_path / "classes.npy")[graph.val_mask] == graph.labels[graph.val_mask]
    assert right.mean() == pytest.approx(max(scores), abs=1e-6)


def test_predictions_are_written_as_numpy_and_as_parquet(run, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    run("train", GRAPH, "--epochs", 3, "--threads", 1, "--run-dir", "r", "--quiet")
    assert "classes of 2,000 vertices in" in run("predict", "r")
    run("predict", "r", "--what", "logits", "--output", "logits.npy")
    run("predict", "r", "--what", "embeddings", "--output", "embeddings.parquet")
    classes, logits = np.load(tmp_path / "r" / "classes.npy"), np.load(tmp_path / "logits.npy")
    assert logits.shape == (2000, 4)
    np.testing.assert_array_equal(classes, logits.argmax(axis=1))
    table = parquet.read_table(tmp_path / "embeddings.parquet")
    assert table.column_names == ["vertex", "embeddings"]
    assert table["vertex"].to_pylist() == list(range(2000))
    assert len(table["embeddings"][0]) == 16


def test_a_graph_is_described_and_converted(run, tmp_path):
    output = run("info", GRAPH)
    assert "2,000" in output
    assert "16,000" in output
    assert "2,000 vertices" in run("convert", GRAPH, "store")
    stored, made = dorylus.Graph.open(tmp_path / "store"), dorylus.load(GRAPH)
    np.testing.assert_array_equal(stored.indices, made.indices)
    np.testing.assert_array_equal(stored.features, made.features)
    run("train", "store", "--epochs", 2, "--threads", 1, "--run-dir", "from-store", "--quiet")
    run("train", GRAPH, "--epochs", 2, "--threads", 1, "--run-dir", "from-name", "--quiet")
    assert weights(tmp_path / "from-store", 2) == weights(tmp_path / "from-name", 2)


def test_the_doctor_finds_this_machine_fit(run):
    out = run("doctor")
    assert "kernels" in out
    assert "fit to train" in out
    assert "fail" not in out
