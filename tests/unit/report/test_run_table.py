import json
import os

import pytest
from log_of_a_run import epoch_record, evaluation_record, result_record, run_record

from dorylus.config import RunConfig
from dorylus.errors import ConfigError
from dorylus.report.run_table import compare_runs, find_runs, list_rows, read_run
from dorylus.runs import RunFolder, RunLock, RunSpec

DEAD = {"host": os.uname().nodename, "pid": 2**22 + 1, "ticks": 1, "since": "long ago"}


def stop(reason):
    return {"kind": "stop", "t": 9.0, "reason": reason, "epoch": 2}


def epochs(*numbers, **others):
    return [epoch_record(number, **others) for number in numbers]


@pytest.fixture
def write_run(tmp_path):
    """Writes a run folder with a log of these records."""

    def write(name, *records, began="2026-01-01T10:00:00+00:00", spec=None, **settings):
        config = RunConfig(epochs=2, **settings)
        folder = RunFolder.create(tmp_path / name, spec, config)
        record = run_record(began=began, resumed_from=None, config=config.to_dict())
        folder.log.write_text("".join(json.dumps(each) + "\n" for each in (record, *records)))
        return folder.path

    return write


@pytest.mark.parametrize(
    ("records", "state", "remark"),
    [
        ([*epochs(1, 2), stop("epochs"), result_record()], "finished", ""),
        ([*epochs(1), stop("patience"), result_record()], "stopped early", "patience"),
        ([*epochs(1), stop("budget"), result_record()], "stopped early", "budget"),
        ([*epochs(1), stop("interrupted")], "interrupted", ""),
        ([*epochs(1)], "interrupted", ""),  # a Trainer that was closed
        ([*epochs(1), stop("diverged")], "crashed", "training diverged"),
        (
            [*epochs(1), {"kind": "fault", "t": 1, "error": "no pool."}, {"kind": "checkpoint", "epoch": 1}],
            "crashed",
            "no pool.",
        ),
        ([*epochs(1), stop("interrupted"), run_record(resumed_from=1), *epochs(2), stop("epochs")], "finished", ""),
    ],
)
def test_the_state_of_a_run_is_how_it_ended(write_run, records, state, remark):
    entry = read_run(write_run("run", *records))
    assert (entry.state, entry.remark) == (state, remark)


def test_a_run_that_holds_its_lock_is_running_and_one_that_left_it_was_killed(write_run):
    path = write_run("run", *epochs(1))
    lock = RunLock(path)
    assert read_run(path).state == "running"
    lock.release()
    assert read_run(path).state == "interrupted"
    (path / "lock").write_text(json.dumps(DEAD))
    assert (read_run(path).state, read_run(path).remark) == ("crashed", "its process was killed")


def test_a_run_of_which_nothing_was_logged_was_killed_in_its_set_up(tmp_path):
    RunFolder.create(tmp_path / "run", RunSpec({"source": "cora"}, {"name": "gcn"}), RunConfig())
    entry = read_run(tmp_path / "run")
    assert (entry.state, entry.epochs, entry.usd) == ("crashed", 0, None)


def test_figures_are_those_of_the_result_or_so_far(write_run):
    bill = {"bill": None}
    done = read_run(write_run("done", *epochs(1, 2), evaluation_record(2, 0.5), result_record(seconds=7.0, **bill)))
    assert (done.scores["test_accuracy"], done.seconds, done.peak_memory_bytes) == (0.815, 7.0, 2**30)
    running = read_run(
        write_run("running", *epochs(1, 2, usd=0.25), evaluation_record(1, 0.9), evaluation_record(2, 0.5))
    )
    assert (running.scores["val_accuracy"], running.seconds, running.usd) == (0.5, 1.0, 0.25)
    assert (running.best["epoch"], running.last["epoch"]) == (1, 2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "run.toml").write_text("[training"),
        lambda path: (path / "run.toml").write_text("[training]\nepochs = -1"),
        lambda path: (path / "run.toml").unlink(),
        lambda path: (path / "log.jsonl").write_text("what?\n"),
        lambda path: (path / "log.jsonl").write_text('{"kind": "run"}\n{"kind": "epoch"}\n'),
        lambda path: (path / "log.jsonl").write_text('{"no": "kind"}\n'),
        lambda path: (path / "log.jsonl").write_text('{"kind": 3}\n'),
        lambda path: (path / "metrics.json").symlink_to("/etc/passwd"),
    ],
)
def test_a_damaged_run_is_a_row_that_says_so(write_run, tmp_path, damage):
    write_run("good", *epochs(1))
    damage(write_run("bad", *epochs(1)))
    rows = {row["run"]: row["state"] for row in list_rows(find_runs(tmp_path))}
    assert rows["good"] == "interrupted"
    assert rows["bad"].startswith("damaged (")


def test_runs_are_found_in_folders_of_folders_the_newest_first(write_run, tmp_path):
    write_run("old", began="2026-01-01T10:00:00+00:00")
    write_run("sub/new", began="2026-01-01T10:00:00-05:00")
    write_run("old/checkpoints/none-of-ours")
    write_run(".hidden/run")
    assert [each.name for each in find_runs(tmp_path)] == ["sub/new", "old"]


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not exist: give the folder that holds your runs"):
        find_runs(tmp_path / "nowhere")


FAST = [*epochs(1, 2, seconds=0.5, usd=1.0), result_record(test_accuracy=0.8), stop("epochs")]
SLOW = [*epochs(1, 2, seconds=0.9, usd=0.25), result_record(test_accuracy=0.815), stop("epochs")]


def test_runs_are_compared_in_words(write_run):
    compared = compare_runs([write_run("a", *FAST), write_run("b", *SLOW, lr=0.5)])
    assert compared.settings == {"lr": [0.01, 0.5]}
    assert compared.words == [
        "a is faster: 500 ms per epoch; b takes 1.80x as long.",
        "b is cheaper: $0.25; a costs 4.00x as much.",
        "b is more accurate: 81.50 % on test vertices; a has 1.50 points less.",
    ]


def test_three_runs_are_ranked_and_equal_ones_share_a_place(write_run):
    paths = [write_run("a", *FAST), write_run("b", *SLOW), write_run("c", *FAST)]
    assert compare_runs(paths).words == [
        "a and c are equally fast: 500 ms per epoch; b takes 1.80x as long.",
        "b is the cheapest: $0.25; a costs 4.00x as much; c costs 4.00x as much.",
        "b is the most accurate: 81.50 % on test vertices; a has 1.50 points less; c has 1.50 points less.",
    ]


def test_what_does_not_compare_is_said_first(write_run, tmp_path):
    graph = {"graph": {"name": "pubmed"}}
    other = write_run("b", run_record(resumed_from=0, **graph), *epochs(1, usd=0.5))
    (other / "lock").write_text(json.dumps(DEAD))
    words = compare_runs([write_run("a", *FAST), other]).words
    assert words == [
        "The runs are on different graphs: times, costs and scores do not compare.",
        "b crashed: its figures are of 1 epoch.",
    ]


def test_dollars_of_runs_of_different_lengths_name_the_epochs(write_run):
    shorter = write_run("b", run_record(resumed_from=0), *epochs(1, usd=0.5))
    words = compare_runs([write_run("a", *FAST), shorter]).words
    assert "b is cheaper: $0.50 for 1 epoch; a costs 2.00x as much for 2 epochs." in words


def test_a_run_without_a_log_is_not_said_to_be_on_another_graph(write_run):
    empty = write_run("b")
    (empty / "log.jsonl").write_text("")
    assert compare_runs([write_run("a", *FAST), empty]).words == ["b crashed: its figures are of 0 epochs."]


@pytest.mark.parametrize("same", [True, False])
def test_graphs_are_the_same_by_their_checksum_whatever_their_names(write_run, same):
    a = write_run("a", *FAST)
    b = write_run("b", run_record(resumed_from=0, **({"graph": {"name": "papers"}} if same else {})), *FAST)
    for path, checksum in ((a, "aa"), (b, "aa" if same else "bb")):
        (path / "graph.json").write_text(json.dumps({"identity": f"9 vertices, {checksum}"}))
    words = compare_runs([a, b]).words
    assert ("The runs are on different graphs: times, costs and scores do not compare." in words) is not same


def test_settings_of_graph_and_model_are_compared_too(write_run):
    specs = [RunSpec({"source": "cora"}, {"name": "gcn", "hidden": hidden}) for hidden in (16, [64, 32])]
    compared = compare_runs([write_run(f"run-{number}", *FAST, spec=spec) for number, spec in enumerate(specs)])
    assert compared.settings == {"model.hidden": [16, "64,32"]}
    assert json.loads(json.dumps(compared.to_dict()))["settings"] == {"model.hidden": [16, "64,32"]}


def test_a_comparison_needs_two_runs_that_can_be_read(write_run, tmp_path):
    with pytest.raises(ConfigError, match="name two or more"):
        compare_runs([write_run("a", *FAST)])
    with pytest.raises(ConfigError, match="holds no run"):
        compare_runs([tmp_path / "a", tmp_path])
