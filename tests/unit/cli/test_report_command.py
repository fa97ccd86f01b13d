import json
import shlex
from dataclasses import replace

import pytest

import dorylus
from dorylus.cli.flags import python_call, train_command
from dorylus.config import RunConfig
from dorylus.runs import RunSpec
from dorylus.runs.run_folder import RunFolder
from dorylus.runs.run_lock import RunLock

CORA = RunSpec({"source": "cora"}, {"name": "gcn"})


def make_run(folder, spec=None, *records, **settings):
    """A run folder with a log."""
    run = RunFolder.create(folder, spec, RunConfig(**settings))
    opening = {
        "kind": "run",
        "t": 0.0,
        "config": run.config.to_dict(),
        "graph": {"name": "cora"},
        "model": {"name": "gcn"},
    }
    run.log.write_text("".join(json.dumps(record) + "\n" for record in (opening, *records)))
    return run


def data_of(path):
    return json.loads(path.read_text().split('id="data">')[1].split("</script>")[0])["runs"]


def epoch(number, loss=0.5):
    return {"kind": "epoch", "t": float(number), "epoch": number, "loss": loss, "seconds": 1.0}


def test_a_report_of_a_run_is_written_to_its_folder(dorylus_program, tmp_path):
    make_run(tmp_path / "run", CORA, epoch(1), lr=0.5)
    assert dorylus_program("report", "run") == (0, "report in run/report.html\n", "")
    (held,) = data_of(tmp_path / "run" / "report.html")
    assert held["name"] == "run"
    assert held["settings"]["graph.source"] == "cora"
    assert held["settings"]["lr"] == "0.5"
    assert held["repeat"] == {"how": "shell", "text": "dorylus train --model gcn --lr 0.5 cora"}
    assert held["curves"]["loss"] == [[1], [0.5]]


def test_several_runs_share_a_page_and_have_names_that_differ(dorylus_program, tmp_path):
    for parent in ("one", "two"):
        make_run(tmp_path / parent / "run", CORA, epoch(1))
    make_run(tmp_path / "three", CORA)
    assert dorylus_program("report", "one/run", "two/run", "three", "--out", "all.html")[0] == 0
    assert [run["name"] for run in data_of(tmp_path / "all.html")] == ["one/run", "two/run", f"{tmp_path.name}/three"]
    dorylus_program("report", "three", "three")
    assert [run["name"] for run in data_of(tmp_path / "three" / "report.html")] == ["three (1)", "three (2)"]


def test_epochs_trained_again_and_a_torn_line_count_as_in_every_reader(dorylus_program, tmp_path):
    run = make_run(tmp_path / "run", CORA, epoch(1), epoch(2, 9.0), {"kind": "run", "resumed_from": 1}, epoch(2))
    with open(run.log, "a") as log:
        log.write('{"kind": "epoch", "ep')
    assert dorylus_program("report", "run")[0] == 0
    assert data_of(tmp_path / "run" / "report.html")[0]["curves"]["loss"] == [[1, 2], [0.5, 0.5]]


def test_a_run_that_was_moved_has_a_report_under_its_new_name(dorylus_program, tmp_path):
    make_run(tmp_path / "before", CORA, epoch(1)).path.rename(tmp_path / "after")
    assert dorylus_program("report", "after")[0] == 0
    assert data_of(tmp_path / "after" / "report.html")[0]["name"] == "after"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing"], "does not exist"),
        (["run", "missing"], "does not exist"),
        (["run", "--out", "nowhere/x.html"], "does not exist"),
        (["run", "--out", "run"], "it is a folder"),
    ],
)
def test_what_cannot_be_read_or_written_is_refused_before_anything_is(dorylus_program, tmp_path, words, message):
    make_run(tmp_path / "run", CORA)
    before = sorted(tmp_path.rglob("*"))
    code, _, err = dorylus_program("report", *words)
    assert (code, message in err, len(err.splitlines())) == (2, True, 1)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "words", [["report", "run"], ["timeline", "run", "--format", "perfetto"], ["compare", "run", "run"]]
)
def test_a_log_with_text_for_a_number_is_refused_by_its_name(dorylus_program, tmp_path, words):
    spans = {"kind": "spans", "t": 1.0, "epoch": 1, "spans": [["GA", 0, 0, 0, 0.0, 0.1, 0, 1]]}
    make_run(tmp_path / "run", CORA, epoch(1) | {"seconds": "x"}, spans)
    code, out, err = dorylus_program(*words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "the run log run/log.jsonl has records that are not as they should be (TypeError: " in err
    assert sorted(path.name for path in (tmp_path / "run").iterdir() if path.suffix in (".html", ".json")) == []


def test_a_live_page_of_a_run_that_no_process_trains_is_refused_with_the_cure(dorylus_program, tmp_path):
    make_run(tmp_path / "run", CORA)
    code, _, err = dorylus_program("live", "run")
    assert code == 2
    assert "`dorylus report run`" in err
    code, _, err = dorylus_program("live", "missing")
    assert (code, "does not exist" in err) == (2, True)


def test_a_trace_is_written_for_perfetto(dorylus_program, tmp_path):
    spans = {"kind": "spans", "t": 1.0, "epoch": 1, "spans": [["GA", 0, 3, 0, 0.0, 0.25, 0, 1]]}
    make_run(tmp_path / "run", CORA, spans)
    assert dorylus_program("timeline", "run", "--format", "perfetto") == (0, "timeline in run/timeline.json\n", "")
    events = json.loads((tmp_path / "run" / "timeline.json").read_text())["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "X"] == ["gather"]
    assert dorylus_program("timeline", "run", "--format", "png")[0] == 2


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        (CORA, {}),
        (
            RunSpec({"source": "/data/my graph's", "root": "/a b", "row_normalise": True}, {"name": "gat", "heads": 4}),
            {"epochs": 7, "lr": 0.5, "prune_rows": False, "patience": 3, "memory": "8GiB"},
        ),
        (
            RunSpec(
                {"source": "x;rm -rf ~", "row_normalise": False, "download": False},
                {"name": "sage", "hidden": [64, 32], "num_layers": 3, "dropout": 0.25, "layer_norm": True},
            ),
            {"weight_decay": {"layers.0.*": 5e-4, "*": 0}, "optimizer": "sgd", "optimizer_options": {"momentum": 0.9}},
        ),
        (RunSpec({"source": "--version"}, {"name": "gcn"}), {"mode": "async", "staleness": 2, "weight_decay": 5e-4}),
        (
            RunSpec({"source": "communities:num_vertices=10"}, {"name": "gcn"}),
            {"lr_schedule": "StepLR", "lr_schedule_options": {"step_size": 3, "why": "3", "also": "true"}},
        ),
    ],
)  # fmt: skip
def test_the_command_of_a_run_gives_the_same_run(dorylus_program, monkeypatch, tmp_path, spec, settings):
    repeated = []
    monkeypatch.setattr("dorylus.cli.train.run", lambda spec, config, **_: repeated.append((spec, config)))
    config = RunConfig(**settings)
    words = shlex.split(train_command(spec, config, tmp_path))
    assert words[0] == "dorylus"
    code, _, err = dorylus_program(*words[1:])
    assert code == 0, err
    ((again, its_config),) = repeated
    assert replace(its_config, run_dir=None) == config
    assert dict(again.model) == dict(spec.model)
    kept = {name: value for name, value in spec.graph.items() if name != "download"}  # how, not what
    assert {name: value for name, value in again.graph.items() if name != "download"} == kept


def test_a_run_that_flags_cannot_say_is_repeated_from_its_run_toml(tmp_path):
    odd = RunSpec({"source": "edges.tsv", "delimiter": ";"}, {"name": "gcn"})
    assert train_command(odd, RunConfig(), tmp_path / "a b") == f"dorylus train --config '{tmp_path}/a b/run.toml'"


def test_a_run_from_python_is_repeated_in_python(monkeypatch):
    config = RunConfig(epochs=3, partition="it's", weight_decay={"*": 0.5}, run_dir="x")
    assert train_command(RunSpec(), config, "x") is None
    given = []
    monkeypatch.setattr(dorylus, "train", lambda *both, **settings: given.append((both, settings)), raising=False)
    exec(python_call(config), {"graph": 1, "model": 2})
    assert given == [((1, 2), {"epochs": 3, "partition": "it's", "weight_decay": {"*": 0.5}})]


def test_a_report_leaves_the_lock_of_a_run_alone(dorylus_program, tmp_path):
    make_run(tmp_path / "run", CORA, epoch(1))
    lock = RunLock(tmp_path / "run")
    assert dorylus_program("report", "run")[0] == 0
    lock.keep()
    lock.release()
