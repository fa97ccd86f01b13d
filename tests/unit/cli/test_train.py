import errno
import io
import os
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import tomli_w

import dorylus
from dorylus import files
from dorylus.cli.train import default_run_dir
from dorylus.config import RunConfig
from dorylus.errors import GraphError
from dorylus.runs.run_folder import RunFolder, RunSpec


@pytest.fixture
def trained(monkeypatch):
    """Replaces loading and training; returns the calls of train."""
    calls = []

    def train(graph, model, **arguments):
        calls.append(SimpleNamespace(graph=graph, model=model, **arguments))

    monkeypatch.setattr(dorylus, "train", train, raising=False)
    monkeypatch.setattr(RunSpec, "load_graph", lambda spec, download: ("graph of", dict(spec.graph), download))
    return calls


def test_graph_and_model_are_made_from_the_arguments(dorylus_program, trained):
    code, _, _ = dorylus_program("train", "cora", "--model", "gat", "--hidden", "8", "--heads", "4", "--dropout", "0.6")
    assert code == 0
    (call,) = trained
    assert call.graph == ("graph of", {"source": "cora"}, True)
    assert (call.model.name, call.model.options["heads"], call.model.options["dropout"]) == ("gat", 4, 0.6)
    assert call.spec.model == {"name": "gat", "hidden": 8, "heads": 4, "dropout": 0.6}


def test_the_model_is_gcn_unless_another_is_named(dorylus_program, trained):
    dorylus_program("train", "cora")
    assert trained[0].spec.model == {"name": "gcn"}


def test_settings_that_are_not_given_have_their_defaults(dorylus_program, trained):
    dorylus_program("train", "cora", "--epochs", "7", "--no-prune-rows", "--optimizer-options", "amsgrad=true")
    given = {name: getattr(trained[0], name) for name in RunConfig.names()}
    assert (
        given
        == RunConfig(
            epochs=7, prune_rows=False, optimizer_options={"amsgrad": True}, run_dir=given["run_dir"]
        ).to_dict()
    )


def test_further_options_reach_the_model(dorylus_program, trained):
    dorylus_program("train", "cora", "--hidden", "32,16", "--num-layers", "3", "--model-option", "layer_norm=true")
    assert trained[0].spec.model == {"name": "gcn", "hidden": [32, 16], "num_layers": 3, "layer_norm": True}


def test_paths_are_written_down_absolute(dorylus_program, trained, tmp_path):
    (tmp_path / "graph.npz").touch()
    dorylus_program("train", "graph.npz", "--root", "data", "--row-normalise")
    expected = {"source": str(tmp_path / "graph.npz"), "root": str(tmp_path / "data"), "row_normalise": True}
    assert trained[0].spec.graph == expected


@pytest.mark.parametrize(("source", "is_path"), [("cora", False), ("./cora", True), ("mine", True)])
def test_a_known_name_is_never_taken_for_a_path(dorylus_program, trained, tmp_path, source, is_path):
    (tmp_path / "cora").mkdir()
    (tmp_path / "mine").mkdir()
    dorylus_program("train", source)
    assert trained[0].spec.graph == {"source": str(tmp_path / source) if is_path else source}


def write_config(path, **sections):
    path.write_text(tomli_w.dumps(sections))
    return path


@pytest.fixture
def config(tmp_path):
    return write_config(
        tmp_path / "config.toml",
        graph={"source": "cora", "root": "/data", "row_normalise": True},
        model={"name": "gat", "hidden": 8, "heads": 2},
        training={"epochs": 5, "lr": 0.25},
    )


def test_a_config_file_alone_is_enough(dorylus_program, trained, config):
    code, _, _ = dorylus_program("train", "--config", config)
    assert code == 0
    assert (trained[0].epochs, trained[0].lr) == (5, 0.25)
    assert trained[0].spec == RunSpec(
        {"source": "cora", "root": "/data", "row_normalise": True}, {"name": "gat", "hidden": 8, "heads": 2}
    )


def test_flags_override_the_file(dorylus_program, trained, config):
    dorylus_program("train", "--config", config, "--epochs", "9", "--heads", "3", "--no-row-normalise")
    assert (trained[0].epochs, trained[0].lr) == (9, 0.25)
    assert trained[0].spec.model == {"name": "gat", "hidden": 8, "heads": 3}
    assert trained[0].spec.graph["row_normalise"] is False


def test_options_of_the_files_graph_and_model_are_not_given_to_others(dorylus_program, trained, config):
    dorylus_program("train", "ring", "--config", config, "--model", "gcn")
    assert trained[0].spec == RunSpec({"source": "ring", "row_normalise": True}, {"name": "gcn"})


def test_the_files_graph_named_again_keeps_its_options(dorylus_program, trained, config):
    dorylus_program("train", "cora", "--config", config, "--no-row-normalise")
    assert trained[0].spec.graph == {"source": "cora", "root": "/data", "row_normalise": False}


def test_downloads_can_be_refused(dorylus_program, trained):
    dorylus_program("train", "cora", "--no-download")
    assert trained[0].graph == ("graph of", {"source": "cora"}, False)
    assert trained[0].spec.graph == {"source": "cora"}


def test_the_run_toml_of_a_run_does_the_same_again(dorylus_program, trained, tmp_path):
    spec = RunSpec({"source": "cora"}, {"name": "sage", "hidden": 4})
    RunFolder.create(tmp_path / "first", spec, RunConfig(epochs=3, weight_decay={"*": 0.5}))
    dorylus_program("train", "--config", tmp_path / "first" / "run.toml", "--run-dir", tmp_path / "second")
    assert trained[0].spec == spec
    assert (trained[0].epochs, trained[0].weight_decay, trained[0].run_dir) == (3, {"*": 0.5}, str(tmp_path / "second"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "no graph is given: name one (dorylus train cora)"),
        (["train", "cora", "--model", "gnc"], "unknown model 'gnc'"),
        (["train", "cora", "--model", "gcn", "--heads", "3"], "unknown option of gcn 'heads'"),
        (["train", "cora", "--epochs", "0"], "use --epochs 1 or more"),
        (["train", "cora", "--mode", "pip"], "Did you mean 'pipe'"),
        (["train", "cora", "--optimizer-options", "x"], "give it as KEY=VALUE"),
        (["train", "cora", "--config", "nowhere.toml"], "cannot read nowhere.toml"),
        (["train", "cora", "--run-dir", "taken"], "already holds a run"),
    ],
)
def test_invalid_arguments_are_refused_and_nothing_is_written(dorylus_program, trained, tmp_path, arguments, message):
    RunFolder.create(tmp_path / "taken", None, RunConfig())
    code, _, err = dorylus_program(*arguments)
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert trained == []
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_bad_graph_is_refused_before_anything_is_written(dorylus_program, trained, tmp_path, monkeypatch):
    def broken(spec, download):
        raise GraphError("row 3 names vertex 99, but there are 10. Give the true number of vertices.")

    monkeypatch.setattr(RunSpec, "load_graph", broken)
    code, _, err = dorylus_program("train", "cora")
    assert (code, err) == (2, "error: row 3 names vertex 99, but there are 10. Give the true number of vertices.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_flag_that_is_no_number_is_a_usage_error(dorylus_program, trained):
    code, _, err = dorylus_program("train", "cora", "--epochs", "many")
    assert code == 2
    assert "--epochs" in err


def test_the_run_folder_is_named_for_graph_model_and_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = RunSpec({"source": "/data/photo.npz"}, {"name": "gcn"})
    now = datetime(2024, 3, 5, 7, 8, 9)
    assert default_run_dir(spec, now) == Path("runs/photo-gcn-20240305-070809")
    Path("runs/photo-gcn-20240305-070809").mkdir(parents=True)
    assert default_run_dir(spec, now) == Path("runs/photo-gcn-20240305-070809-2")


def test_the_options_of_a_generator_are_not_in_the_folders_name():
    spec = RunSpec({"source": "communities:num_vertices=10,seed=1"}, {"name": "gcn"})
    assert default_run_dir(spec, datetime(2024, 1, 1)).name == "communities-gcn-20240101-000000"


def test_ctrl_c_prints_how_to_resume(dorylus_program, trained, monkeypatch, tmp_path):
    def interrupted(graph, model, run_dir, **_):
        RunFolder.create(run_dir, None, RunConfig())
        raise KeyboardInterrupt

    monkeypatch.setattr(dorylus, "train", interrupted)
    code, _, err = dorylus_program("train", "cora", "--run-dir", "here")
    assert (code, err) == (130, "interrupted; continue with: dorylus resume here\n")


def test_ctrl_c_before_the_first_save_prints_that_nothing_was_saved(dorylus_program, trained, monkeypatch):
    def interrupted(graph, model, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr(dorylus, "train", interrupted)
    assert dorylus_program("train", "cora")[2] == "interrupted; nothing was saved\n"


@pytest.mark.parametrize("flags", [[], ["--quiet"]])
def test_the_terminal_reads_the_run_log(dorylus_program, trained, monkeypatch, flags):
    def train(graph, model, sinks, **_):
        for record in (
            {"kind": "run", "config": {"epochs": 1}, "graph": {"name": "cora"}, "model": {"name": "gcn"}},
            {"kind": "epoch", "epoch": 1, "loss": 0.5, "seconds": 0.1},
            {"kind": "result", "test_accuracy": 0.8},
        ):
            sinks[0].write(record)

    monkeypatch.setattr(dorylus, "train", train)
    _, out, _ = dorylus_program("train", "cora", *flags)
    assert "80.00 %" in out
    assert ("epoch 1/1" in out) == (not flags)


def test_a_store_without_labels_is_refused_with_the_flags_that_add_them(dorylus_program, tmp_path):
    dorylus.Graph.from_edges([0, 1], [1, 2]).save(tmp_path / "store")
    code, _, err = dorylus_program("train", "store")
    assert code == 2
    assert "has no labels" in err
    assert "dorylus ingest EDGES STORE --features FILE --labels FILE --train FILE" in err


def full_log(monkeypatch):
    """Has the run log's disk full once three records are written."""
    left = [3]

    class Full(io.FileIO):
        def write(self, data):
            left[0] -= 1
            return super().write(data) if left[0] >= 0 else no_space()

    def open_full(descriptor, *_, **__):
        return Full(descriptor, "wb")

    monkeypatch.setattr("dorylus.runs.run_log.open", open_full, raising=False)


def full_files(monkeypatch, name):
    """Has the disk full where a file of this name is written."""
    write_new = files._write_new

    def write(path, content):
        return no_space() if path.name.endswith(name) else write_new(path, content)

    monkeypatch.setattr(files, "_write_new", write)


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FULL_DISKS = {
    "run log": full_log,
    "checkpoint": lambda patch: full_files(patch, "weights.safetensors"),
    "use": lambda patch: full_files(patch, "used.json"),
    "result": lambda patch: full_files(patch, "metrics.json"),
    "settings": lambda patch: full_files(patch, "run.toml"),
    "ledger": lambda patch: patch.setattr("dorylus.runs.ledger.UsageLedger._write", no_space),
    "lock": lambda patch: patch.setattr(os, "pwrite", no_space),
}


@pytest.mark.parametrize("full", FULL_DISKS.values(), ids=FULL_DISKS.keys())
def test_a_full_disk_is_a_failure_whatever_did_not_fit(dorylus_program, monkeypatch, full):
    with monkeypatch.context() as patch:
        full(patch)
        code, _, err = dorylus_program("train", "ring:num_vertices=30", "--epochs", 3, "--threads", 1, "--quiet")
    assert code == 1
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "No space left on device" in err
