"""Runs that are logged to TensorBoard, MLflow and Weights & Biases, all offline, and read back from their files."""

import importlib
import json

import pytest

import dorylus
from dorylus.runs import RunFolder

EPOCHS = 7
SCORED = [2, 4, 6]


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """Every switch that keeps these packages off the network."""
    monkeypatch.chdir(tmp_path)
    switches = {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_CONFIG_DIR": str(tmp_path / "wandb-config"),
        "WANDB_CACHE_DIR": str(tmp_path / "wandb-cache"),
        "WANDB_DATA_DIR": str(tmp_path / "wandb-data"),
        "MLFLOW_TRACKING_URI": f"file:{tmp_path / 'mlruns'}",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "NO_PROXY": "*",
    }
    for name, value in switches.items():
        monkeypatch.setenv(name, value)
    for name in ("WANDB_SERVICE", "_RJEM_MALLOC_CONF"):  # set by the packages: put back as they were
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr("socket.getaddrinfo", lambda host, *_, **__: pytest.fail(f"{host} is looked up"))


def killed_and_resumed(logger):
    """The result of a run that was stopped after five epochs, two of them not saved, and resumed."""
    if importlib.util.find_spec(logger) is None:
        pytest.skip(f"{logger} is not installed")
    graph, model = dorylus.communities(num_vertices=200, num_classes=3, num_features=6, average_degree=6), dorylus.gcn()
    settings = {"epochs": EPOCHS, "eval_every": 2, "checkpoint_every": 3, "threads": 1, "lr": 0.02}
    with dorylus.Trainer(graph, model, run_dir="run", log_to=logger, **settings) as trainer:
        trainer.run(5)
    return dorylus.resume("run", graph, model)


def check(steps, result):
    """Every epoch is there once, with its figures and, where it was evaluated, its scores."""
    assert [step for step, _ in steps] == list(range(1, EPOCHS + 1))
    assert [figures["loss"] for _, figures in steps] == pytest.approx(result.losses, rel=1e-6)
    assert all({"seconds", "usd", "memory_bytes"} <= figures.keys() for _, figures in steps)
    assert [step for step, figures in steps if "val_accuracy" in figures] == SCORED


def test_tensorboard_has_every_epoch_once():
    result = killed_and_resumed("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator("run/tensorboard").Reload()
    steps = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            assert tag not in steps.setdefault(event.step, {})
            steps[event.step][tag] = event.value
    check(sorted(steps.items()), result)
    settings, closing = (events.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in ("settings", "result"))
    assert "| lr | 0.02 |" in settings
    assert f"| test_accuracy | {result.summary()['test_accuracy']} |" in closing


def test_mlflow_has_every_epoch_once():
    result = killed_and_resumed("mlflow")
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("dorylus")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "run")
    steps = {}
    for tag in run.data.metrics.keys() - {name for name in run.data.metrics if name.startswith("final_")}:
        for event in client.get_metric_history(run.info.run_id, tag):
            assert tag not in steps.setdefault(event.step, {})
            steps[event.step][tag] = event.value
    check(sorted(steps.items()), result)
    assert run.data.params["lr"] == "0.02"
    assert run.data.params["graph.vertices"] == "200"
    assert run.data.metrics["final_test_accuracy"] == result.summary()["test_accuracy"]
    assert run.data.metrics["final_usd"] == pytest.approx(result.bill.total_usd)
    assert run.data.tags["stopped"] == "epochs"


BLOCK, HEAD, FULL, LAST = 32768, 7, 1, 4


def wandb_records(path):
    """The records of a .wandb file: a header of 7 bytes, then the blocks of a LevelDB log."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, place, parts = path.read_bytes(), HEAD, []
    while place + HEAD <= len(content):
        if BLOCK - place % BLOCK < HEAD:
            place += BLOCK - place % BLOCK
        size, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        parts.append(content[place + HEAD : place + HEAD + size])
        place += HEAD + size
        if kind in (FULL, LAST):
            yield Record.FromString(b"".join(parts))
            parts = []


def items_of(update):
    return {each.key or ".".join(each.nested_key): json.loads(each.value_json) for each in update}


def test_wandb_has_every_epoch_once(tmp_path):
    result = killed_and_resumed("wandb")
    import wandb

    wandb.teardown()
    steps, config, summary = [], {}, {}
    files = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    assert {path.name for path in files} == {f"run-{RunFolder.open('run').read_logger_ids()['wandb']}.wandb"}
    for record in (record for path in files for record in wandb_records(path)):
        if figures := items_of(record.history.item):
            steps.append((figures["_step"], figures))
        config |= items_of(record.run.config.update)
        summary |= items_of(record.summary.update)
    check(steps, result)
    assert (config["lr"], config["graph.name"]) == (0.02, "communities")
    assert summary["final_test_accuracy"] == result.summary()["test_accuracy"]
