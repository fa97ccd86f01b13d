"""Runs that are stopped, killed and resumed: also asynchronous ones, and on another number of servers."""

import json
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

import dorylus
from dorylus.cli import main
from dorylus.errors import ConfigError
from dorylus.runs import checkpoint
from dorylus.saga import Recipe, dense
from dorylus.training import trainer as trainer_module
from dorylus.training.trainer import Trainer

GRAPH = "communities:num_vertices=400,num_classes=4,num_features=8,average_degree=8"


@pytest.fixture(scope="module")
def graph() -> dorylus.Graph:
    return dorylus.load(GRAPH)


def epochs_counted(run_dir: Path, epoch: int | None = None) -> set[float]:
    """How many epochs' worth of steps Adam has taken, of each parameter, in the latest checkpoint or that of an epoch.

    An interval's step counts as its part of an epoch: one lost or taken twice would show.
    """
    folder = run_dir / "checkpoints"
    state = checkpoint.load(folder if epoch is None else checkpoint.at_epoch(folder, epoch))
    assert state.optimizer["state"].keys() == state.weights.keys()
    return {round(float(each["step"]), 3) for each in state.optimizer["state"].values()}


class StoppedError(Exception):
    """What a broken sink raises."""


class StopsAt:
    """A sink that raises at the record of a kind for an epoch."""

    def __init__(self, kind: str, epoch: int) -> None:
        self.kind, self.epoch = kind, epoch

    def write(self, record: Any) -> None:
        if record["kind"] == self.kind and record["epoch"] == self.epoch:
            raise StoppedError

    def close(self) -> None:
        pass


ASYNC = {
    "mode": "async",
    "staleness": 1,
    "weight_update": "async",
    "servers": 2,
    "intervals": 3,
    "parameter_servers": 2,
    "threads": 3,
}
NUM_INTERVALS = 6


def recipe() -> Recipe:
    return dorylus.gcn(hidden=8, dropout=0.5)


@pytest.mark.parametrize(
    ("kind", "epoch", "saved"),
    [("epoch", 1, 0), ("epoch", 4, 2), ("evaluation", 5, 4), ("epoch", 7, 6), ("checkpoint", 8, 8)],
    ids=lambda part: str(part),
)
def test_an_asynchronous_run_that_breaks_off_goes_on_with_every_update_once(
    graph: dorylus.Graph, tmp_path: Path, kind: str, epoch: int, saved: int
) -> None:
    run_dir = tmp_path / "run"
    settings = {"epochs": 10, "checkpoint_every": 2, "eval_every": 1, "run_dir": str(run_dir)}
    with pytest.raises(StoppedError):
        dorylus.train(graph, recipe(), sinks=[StopsAt(kind, epoch)], **settings, **ASYNC)
    if saved:
        assert epochs_counted(run_dir) == {saved}
    else:
        assert checkpoint.latest(run_dir / "checkpoints") is None
    result = dorylus.resume(run_dir, graph, recipe())
    assert (len(result.losses), result.stopped) == (10, "epochs")
    assert epochs_counted(run_dir, 8) == {8}
    assert epochs_counted(run_dir, 10) == {10}
    assert np.isfinite(result.losses).all()


def test_an_asynchronous_run_with_synchronous_updates_makes_one_an_epoch(graph: dorylus.Graph, tmp_path: Path) -> None:
    settings = {"epochs": 6, "checkpoint_every": 3, "run_dir": str(tmp_path / "run")}
    with pytest.raises(StoppedError):
        dorylus.train(graph, recipe(), sinks=[StopsAt("epoch", 5)], **settings, **ASYNC | {"weight_update": "sync"})
    assert epochs_counted(tmp_path / "run") == {3}
    dorylus.resume(tmp_path / "run", graph, recipe())
    assert epochs_counted(tmp_path / "run") == {6}


def test_an_asynchronous_run_goes_on_cut_in_another_way(graph: dorylus.Graph, tmp_path: Path) -> None:
    settings = {"epochs": 8, "checkpoint_every": 2, "run_dir": str(tmp_path / "run")}
    with pytest.raises(StoppedError):
        dorylus.train(graph, recipe(), sinks=[StopsAt("epoch", 5)], **settings, **ASYNC)
    result = dorylus.resume(tmp_path / "run", graph, recipe(), servers=3, intervals=4, parameter_servers=1)
    assert epochs_counted(tmp_path / "run") == {8}
    assert result.losses[-1] < result.losses[0]


def test_a_checkpoint_with_intervals_in_flight_would_be_noticed(
    graph: dorylus.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if nothing drained before a checkpoint, with one interval in epoch 3 while the others are in epoch 4.
    monkeypatch.setattr(
        trainer_module,
        "last_startable_epoch",
        lambda _, progress, until: min(len(progress.losses) + 1, until - 1),
    )
    settings = {"epochs": 6, "checkpoint_every": 3, "run_dir": str(tmp_path / "run")}
    with Trainer(graph, recipe(), pool=OneComesLast(), **settings, **ASYNC | {"threads": 1}) as trainer:
        trainer.run()
    assert epochs_counted(tmp_path / "run", 3) != {3}


class OneComesLast:
    """Answers at once, but one interval's first call of epoch 3 only after the last interval's last of epoch 4."""

    def __init__(self) -> None:
        self.held: list[Any] = []
        self.holds, self.last_step = True, 0

    def submit(self, call: Any, done: Any, failed: Any) -> None:
        epoch, interval, step = call.task.epoch + 1, call.task.interval, call.task.step
        training = any(weight.requires_grad for weight in call.weights.values())
        if training and self.holds and (interval, epoch) == (0, 3):
            self.held.append((call, done))
            self.holds = False
            return
        self.last_step = max(self.last_step, step)
        done(dense.run(call))
        if self.held and (interval, epoch, step) == (NUM_INTERVALS - 1, 4, self.last_step):
            late, answer = self.held.pop()
            answer(dense.run(late))

    def close(self) -> None:
        self.held.clear()


def wait_for(condition: Any, process: "subprocess.Popen[str]", deadline_s: float = 100.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.01)


def test_an_asynchronous_process_killed_outright_has_saved_every_update_once(run: Any, tmp_path: Path) -> None:
    run_dir, epochs = tmp_path / "run", 60
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in ASYNC.items()]
    command = [sys.executable, "-m", "dorylus.cli", "train", GRAPH, *flags, f"--epochs={epochs}"]
    more = ["--checkpoint-every=2", "--eval-every=0", f"--run-dir={run_dir}"]
    process = subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for(lambda: (checkpoint.latest(run_dir / "checkpoints") or Path("0")).name > "epoch-000004", process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    saved = checkpoint.load(run_dir / "checkpoints").epoch
    assert 4 < saved < epochs, "a run that had ended was killed, which proves nothing"
    assert epochs_counted(run_dir) == {saved}
    run("resume", run_dir, "--quiet")
    assert epochs_counted(run_dir) == {epochs}
    assert json.loads((run_dir / "metrics.json").read_text())["epochs"] == epochs


def assert_same_weights(run_dir: Path, other: Path, epoch: int, relative: float = 1e-4) -> None:
    """The weights of two runs after an epoch agree, each by the largest entry of its tensor."""
    found, expected = (
        load_file(checkpoint.at_epoch(each / "checkpoints", epoch) / "weights.safetensors") for each in (run_dir, other)
    )
    assert found.keys() == expected.keys()
    for name, want in expected.items():
        off, allowed = (found[name] - want).abs().max().item(), relative * want.abs().max().item()
        assert off <= allowed, f"{name} is off by {off:.3g}, more than {allowed:.3g}"


ONE = {"servers": 1, "parameter_servers": 1, "intervals": 2}
THREE = {"servers": 3, "parameter_servers": 2, "intervals": 5, "partition": "hash"}
FOUR = {"servers": 4, "parameter_servers": 3, "intervals": 3, "partition": "metis"}
SETTINGS = {"epochs": 10, "checkpoint_every": 5, "eval_every": 0, "threads": 2, "weight_decay": 5e-4}
RATES = {"lr": 0.02, "lr_schedule": "StepLR", "lr_schedule_options": {"step_size": 3, "gamma": 0.5}}


@pytest.fixture(scope="module", params=["gcn", "gat"])
def undisturbed(request: Any, graph: dorylus.Graph, tmp_path_factory: Any) -> tuple[Recipe, Path, list[float]]:
    """A model, the folder of its run on one server, and its losses."""
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    model = getattr(dorylus, request.param)(dropout=0.5)
    result = dorylus.train(graph, model, run_dir=str(run_dir), **SETTINGS, **RATES, **ONE)
    return model, run_dir, result.losses


@pytest.mark.parametrize(
    ("before", "after"), [(ONE, FOUR), (FOUR, THREE), (THREE, ONE)], ids=["1 to 4", "4 to 3", "3 to 1"]
)
def test_a_synchronous_run_goes_on_cut_in_another_way_to_the_same_weights(
    graph: dorylus.Graph, undisturbed: Any, tmp_path: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    model, whole, losses = undisturbed
    with Trainer(graph, model, run_dir=str(tmp_path / "run"), **SETTINGS, **RATES, **before) as trainer:
        trainer.run(5)
    result = dorylus.resume(tmp_path / "run", graph, model, **after)
    np.testing.assert_allclose(result.losses, losses, rtol=1e-4)
    assert_same_weights(tmp_path / "run", whole, 10)
    written = tomllib.loads((tmp_path / "run" / "run.toml").read_text())["training"]
    assert {name: written[name] for name in after} == after


def test_a_different_weight_is_noticed(graph: dorylus.Graph, undisturbed: Any, tmp_path: Path) -> None:
    model, whole, _ = undisturbed
    dorylus.train(graph, model, run_dir=str(tmp_path / "run"), **SETTINGS | {"weight_decay": 6e-4}, **RATES, **FOUR)
    with pytest.raises(AssertionError, match="is off by"):
        assert_same_weights(tmp_path / "run", whole, 10)


def test_a_run_may_be_cut_anew_many_times(graph: dorylus.Graph, undisturbed: Any, tmp_path: Path) -> None:
    model, whole, losses = undisturbed
    settings = SETTINGS | {"checkpoint_every": 1}
    with Trainer(graph, model, run_dir=str(tmp_path / "run"), **settings, **RATES, **ONE) as trainer:
        trainer.run(2)
    for cut in (FOUR, THREE, {"servers": 2}, {"intervals": 7}):
        with Trainer.resume(tmp_path / "run", graph, model, **cut) as trainer:
            found = trainer.run(2).result().losses
    np.testing.assert_allclose(found, losses, rtol=1e-4)
    assert_same_weights(tmp_path / "run", whole, 10)


@pytest.fixture
def run(capsys: Any) -> Any:
    """Runs the program, expects exit code 0 and returns its output."""

    def call(*arguments: object) -> str:
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert not end.value.code, err
        return out

    return call


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Any) -> Path:
    """The folder of a run from the command line, of 10 epochs."""
    folder = tmp_path_factory.mktemp("command") / "whole"
    flags = ["--epochs=10", "--checkpoint-every=5", "--threads=2", "--eval-every=0", "--quiet"]
    with pytest.raises(SystemExit) as end:
        main(["train", GRAPH, *flags, f"--run-dir={folder}"])
    assert not end.value.code
    return folder


@pytest.fixture
def stopped(whole: Path, tmp_path: Path) -> Path:
    """The same run, stopped after 5 of its epochs."""
    shutil.copytree(whole, tmp_path / "cut")
    shutil.rmtree(checkpoint.at_epoch(tmp_path / "cut" / "checkpoints", 10))  # as if the run had not reached this epoch
    (tmp_path / "cut" / "metrics.json").unlink()
    return tmp_path / "cut"


def test_the_command_line_cuts_a_run_in_another_way(run: Any, whole: Path, stopped: Path) -> None:
    run("resume", stopped, "--servers", 2, "--intervals", 3, "--quiet")
    assert_same_weights(stopped, whole, 10)
    metrics = json.loads((stopped / "metrics.json").read_text())
    assert (metrics["servers"], metrics["epochs"]) == (2, 10)
    assert metrics["traffic"]["ghosts"] > 0


CHANGES = {
    "lr": 0.5, "mode": "async", "epochs": 20, "seed": 1, "ghost_precision": "bf16", "optimizer": "sgd",
    "lr_schedule": "StepLR",
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_what_would_change_the_result_is_refused_in_python(graph: dorylus.Graph, stopped: Path, name: str) -> None:
    before = (stopped / "run.toml").read_bytes()
    with pytest.raises(ConfigError, match=f"^{name} is part of what a run computes") as refused:
        dorylus.resume(stopped, **{name: CHANGES[name]})
    assert "\n" not in str(refused.value)
    assert (stopped / "run.toml").read_bytes() == before


@pytest.mark.parametrize("name", CHANGES)
def test_what_would_change_the_result_is_refused_on_the_command_line(capsys: Any, stopped: Path, name: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(["resume", str(stopped), f"--{name.replace('_', '-')}", str(CHANGES[name])])
    assert end.value.code == 2
    assert f"No such option: --{name.replace('_', '-')}" in capsys.readouterr().err


def test_a_cut_that_cannot_be_is_refused_and_leaves_the_run_as_it_was(graph: dorylus.Graph, stopped: Path) -> None:
    before = (stopped / "run.toml").read_bytes()
    with pytest.raises(ConfigError, match="An interval holds at least one vertex"):
        dorylus.resume(stopped, servers=4, intervals=300)
    assert (stopped / "run.toml").read_bytes() == before
    dorylus.resume(stopped)
    assert checkpoint.load(stopped / "checkpoints").epoch == 10
