"""Errors of users: each gives one sentence with the cure, exit code 2, no traceback, and nothing is written."""

import re
import subprocess
import sys
import tomllib

import numpy as np
import pytest
import tomli_w

import dorylus
from dorylus.cli import main

NUM_VERTICES = 30


def listing(folder):
    """Every file and folder below, with its size."""
    return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*"))}


@pytest.fixture
def refused(capsys, monkeypatch, tmp_path):
    """Runs the program in an empty folder, expects a refusal and returns its sentence."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        before = listing(tmp_path)
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert end.value.code == 2, err
        assert isinstance(end.value.__context__, dorylus.DorylusError | OSError)
        assert listing(tmp_path) == before
        assert out == ""
        assert "Traceback" not in err
        (line,) = err.splitlines()
        assert line.startswith("error: ")
        return line

    return run


def archive(path, **changes):
    """A graph in an .npz file, with some of its arrays corrupted or left out."""
    rng = np.random.default_rng(0)
    vertices = np.arange(NUM_VERTICES)
    arrays = {
        "num_nodes": np.int64(NUM_VERTICES),
        "edges": np.stack([vertices, np.roll(vertices, 1)]),
        "feat_indptr": np.arange(NUM_VERTICES + 1) * 4,
        "feat_indices": np.tile(np.arange(4), NUM_VERTICES),
        "feat_data": rng.standard_normal(4 * NUM_VERTICES).astype(np.float32),
        "feat_shape": np.array([NUM_VERTICES, 4]),
        "labels": vertices % 3,
        "train_idx": np.arange(10),
        "val_idx": np.arange(10, 20),
        "test_idx": np.arange(20, 30),
    }
    kept = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez(path, **kept)
    return path


def corrupted(array, at, value):
    array = np.array(array)
    array[at] = value
    return array


def test_the_undamaged_archive_is_accepted(tmp_path):
    result = dorylus.train(dorylus.load(archive(tmp_path / "good.npz")), dorylus.gcn(), epochs=2, threads=1)
    assert len(result.losses) == 2


FEATURES = np.ones(4 * NUM_VERTICES, np.float32)
EDGES = np.stack([np.arange(NUM_VERTICES), np.roll(np.arange(NUM_VERTICES), 1)])
BAD_ARRAYS = {
    "labels of too few vertices": ({"labels": np.arange(7) % 3}, r"7 labels, but 30 vertices"),
    "features of too few vertices": (
        {"feat_indptr": np.arange(6) * 4, "feat_indices": np.tile(np.arange(4), 5), "feat_data": FEATURES[:20]},
        r"features.*\b5\b.*\b30\b",
    ),
    "a feature that is not a number": (
        {"feat_data": corrupted(FEATURES, 4 * 7 + 2, np.nan)},
        r"is nan \(vertex 7, column 2\).*replace the value",
    ),
    "a feature that is infinite": (
        {"feat_data": corrupted(FEATURES, 4 * 7 + 2, np.inf)},
        r"is inf \(vertex 7, column 2\).*replace the value",
    ),
    "a label below zero": ({"labels": corrupted(np.arange(NUM_VERTICES) % 3, 11, -5)}, r"vertex 11\b.*-5"),
    "labels that are numbers of something else": (
        {"labels": corrupted(np.arange(NUM_VERTICES) % 2, 11, 1_000_000)},
        r"labels up to 1,000,000, but only 3 of those 1,000,001 classes have a vertex.*np\.unique",
    ),
    "no vertex to train on": ({"train_idx": None}, r"empty train_mask: mark at least one labelled vertex"),
    "no labels": ({"labels": None, "train_idx": None, "val_idx": None, "test_idx": None}, r"has no labels"),
    "no features": (dict.fromkeys(["feat_indptr", "feat_indices", "feat_data", "feat_shape"]), r"has no features"),
    "an edge to a missing vertex": (
        {"edges": corrupted(EDGES, (1, 4), 99)},
        r"edge 4 -> 99 .*vertices 0 to 29.*drop the edge",
    ),
    "an edge from a vertex below zero": ({"edges": corrupted(EDGES, (0, 4), -1)}, r"-1\b"),
    "a trained vertex that is missing": ({"train_idx": np.array([3, 77])}, r"77\b"),
    "half an archive": ({"edges": None}, r"has the members .*A graph archive has"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_a_bad_graph_is_refused_by_its_first_bad_place(refused, tmp_path, case):
    changes, pattern = BAD_ARRAYS[case]
    sentence = refused("train", archive(tmp_path / "bad.npz", **changes), "--epochs", 1)
    assert_matches(sentence, pattern)


def assert_matches(sentence, pattern):
    assert re.search(pattern, sentence), sentence


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (["train", "coraa"], r"coraa.*Did you mean 'cora'"),
        (["info", "pubmedd"], r"pubmedd.*Did you mean 'pubmed'"),
        (["convert", "nowhere.npz", "store"], r"nowhere\.npz"),
        (["train", "ring", "--model", "gnn"], r"unknown model 'gnn': the known ones are gat, gcn, gin, sage"),
        (["train", "ring", "--model", "gcn", "--model-option", "actvation=elu"], r"Did you mean 'activation'"),
        (["train", "ring", "--model-option", "activation=reluu"], r"activation=reluu is unknown.*Did you mean 'relu'"),
        (["train", "ring", "--hidden", "wide"], r"hidden"),
        (["train", "ring", "--hidden", "x"], r"hidden"),
        (["train", "ring", "--hidden", "1.5"], r"hidden"),
        (["train", "ring", "--hidden", "0"], r"hidden"),
        (["train", "ring", "--dropout", "1.5"], r"--dropout 1\.5"),
        (["train", "ring", "--model-option", "input_dropout=much"], r"input_dropout"),
        (["train", "ring", "--model-option", "residual=perhaps"], r"residual"),
        (["train", "ring", "--num-layers", "0"], r"--num-layers 0"),
        (["train", "ring:num_vertices=20", "--intervals", "21"], r"--intervals 21, but.*20 vertices.*use at most 20"),
        (["train", "ring", "--threads", "0"], r"use --threads 1 or more"),
        (["train", "ring:num_vertices=20", "--servers", "21"], r"--servers 21\b.*20 vertices"),
        (["train", "ring", "--servers", "2", "--partition", "streem"], r"streem.*Did you mean 'stream'"),
        (["train", "ring", "--mode", "asink"], r"--mode asink is unknown.*Did you mean 'async'"),
        (["train", "ring", "--staleness", "1"], r"--staleness 1 with --mode pipe.*use --mode async"),
        (["train", "ring", "--mode", "async", "--sync-margin", "0.1"], r"without --target-accuracy.*give both"),
        (
            ["train", "ring", "--model", "sage", "--model-option", "aggregator=max", "--mode", "async"],
            r"gathers a maximum.*use --mode pipe",
        ),
        (["train", "ring", "--optimizer", "adamm"], r"--optimizer adamm is unknown"),
        (["train", "ring", "--lr-schedule", "never"], r"--lr-schedule never is unknown"),
        (["train", "ring", "--weight-decay", "wieght=1"], r"--weight-decay has the pattern 'wieght'"),
        (["train", "ring", "--loss", "bce"], r"use --loss auto"),
        (["train", "ring", "--hidden", "100000000"], r"--hidden 100000000, but --hidden is .* at most 16,777,216"),
        (["train", "ring", "--hidden", "1000000000000"], r"--hidden 1000000000000, but --hidden is .* at most"),
        (
            ["train", "ring", "--hidden", "10000000", "--num-layers", "3"],
            r"[\d,]{15,} weights.* are free\. Use a narrower",
        ),
        (["train", "ring", "--num-layers", "128"], r"--num-layers 128, but --num-layers is .* at most 100"),
        (
            ["train", "ring", "--model", "gat", "--heads", "1000000000"],
            r"--heads 1000000000, but --heads is .* at most 4,096",
        ),
        (["train", "ring", "--model", "gat", "--model-option", "slope=1e300"], r"slope=1e\+300.*at most 1e\+30"),
        (["train", "ring", "--model", "gin", "--model-option", "eps=NaN"], r"eps=nan.*finite"),
        (["train", "ring", "--dropout", "nan"], r"--dropout nan"),
        (["train", "ring", "--lr", "1e38"], r"--lr 1e\+38, but --lr is .*at most 1e\+30"),
        (["train", "ring", "--weight-decay", "1e38"], r"--weight-decay 1e\+38.*at most 1e\+30"),
        (["train", "ring", "--epochs", "1000000000000000000"], r"epochs is at most 1000000000"),
        (["train", "ring", "--deadline-s", "1e300"], r"--deadline-s 1e\+300.*at most 1e\+08"),
        (["train", "ring", "--grace-s", "nan"], r"--grace-s nan"),
        (
            ["train", "ring", "--lr-schedule", "ExponentialLR", "--lr-schedule-options", "gamma=1e400"],
            r"--lr-schedule-options gamma is inf, but an option is a finite number",
        ),
        (["train", "ring", "--run-dir", "a\0b"], r"'a\\x00b' is no UTF-8 text, or has a NUL byte"),
        (["train", "ring", "--run-dir", "a\udcffb"], r"no UTF-8 text"),
        (["train", "ring", "--run-dir", "a" * 5000], r"--run-dir a+\.\.\. has 5,000 bytes.*Choose a shorter one"),
        (["train", "ring", "--memory", "1GiB", "--scratch-dir", "a" * 300], r"--scratch-dir .* has 300 bytes"),
        (["convert", "ring", "a" * 5000], r"cannot be written: File name too long. Choose another name"),
        (["info", "a" * 5000], r"is too long"),
        (["resume", "a" * 5000], r"is too long"),
        (["train", "ring:num_vertices=two"], r"num_vertices"),
        (["train", "ring:vertices=20"], r"vertices"),
        (["train", "ring:num_vertices=-3"], r"num_vertices=-3"),
        (["resume", "nowhere"], r"nowhere does not exist: give the folder"),
        (["predict", "nowhere"], r"nowhere"),
    ],
    ids=lambda value: ascii(" ".join(value))[:80] if isinstance(value, list) else "",
)
def test_a_bad_request_is_refused_with_the_cure(refused, arguments, pattern):
    assert_matches(refused(*arguments), pattern)


@pytest.fixture
def store(tmp_path):
    dorylus.ring(num_vertices=20).save(tmp_path / "store")
    return tmp_path / "store"


def test_a_truncated_store_is_refused_by_the_file_that_is_short(refused, store):
    largest = max(store.iterdir(), key=lambda path: path.stat().st_size)
    with open(largest, "r+b") as file:
        file.truncate(largest.stat().st_size // 2)
    sentence = refused("train", store)
    assert largest.name.split(".")[0] in sentence
    assert "Copy or ingest it again" in sentence


def test_a_store_that_lacks_a_file_is_refused(refused, store):
    largest = max(store.iterdir(), key=lambda path: path.stat().st_size)
    largest.unlink()
    assert largest.name.split(".")[0] in refused("train", store)


def test_a_store_whose_manifest_is_cut_off_is_refused(refused, store):
    manifest = store / "manifest.json"
    manifest.write_text(manifest.read_text()[:-20])
    assert "manifest" in refused("info", store)


def test_a_store_is_not_overwritten_without_the_flag(refused, store):
    assert "--overwrite" in refused("convert", "ring", store)


@pytest.fixture
def run_dir(tmp_path):
    """A finished run of a small model."""
    main_ends_well("train", "ring:num_vertices=20", "--epochs", 2, "--threads", 1, "--run-dir", tmp_path / "run")
    return tmp_path / "run"


def main_ends_well(*arguments):
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert not end.value.code


def with_other_model(run_dir, **options):
    """Edits run.toml, as a user might."""
    path = run_dir / "run.toml"
    content = tomllib.loads(path.read_text())
    content["model"] |= options
    path.write_text(tomli_w.dumps(content))


@pytest.mark.parametrize("command", ["resume", "predict"])
@pytest.mark.parametrize("options", [{"hidden": 5}, {"name": "sage"}, {"num_layers": 3}, {"activation": "tanh"}])
def test_a_checkpoint_of_another_model_is_refused(refused, run_dir, capsys, command, options):
    with_other_model(run_dir, **options)
    capsys.readouterr()
    assert_matches(refused(command, run_dir), r"is of another model: .*Build the model the checkpoint was made with")


def test_a_damaged_checkpoint_is_refused_with_the_way_out(refused, run_dir, capsys):
    (weights,) = run_dir.glob("checkpoints/*/weights.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    capsys.readouterr()
    assert_matches(refused("predict", run_dir), r"damaged: weights\.safetensors.*train again from the beginning")


def test_a_folder_that_holds_a_run_is_not_used_for_another(refused, run_dir, capsys):
    capsys.readouterr()
    sentence = refused("train", "ring", "--run-dir", run_dir)
    assert f"dorylus resume {run_dir}" in sentence


def test_predictions_have_a_known_form(refused, run_dir, capsys):
    capsys.readouterr()
    assert "ends in .npy or .parquet" in refused("predict", run_dir, "--output", "classes.txt")
    assert "hidden" in refused("predict", run_dir, "--what", "embeddings", "--layer", 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "coraa"], "Did you mean 'cora'"),
        pytest.param(["train", "ring:num_vertices=20", "--intervals", "21"], "use at most 20", marks=pytest.mark.soak),
    ],
)
def test_the_real_program_ends_with_one_line_and_exit_code_2(tmp_path, arguments, message):
    done = subprocess.run(
        [sys.executable, "-m", "dorylus.cli", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"features": np.ones((3, 2), np.float32)}, r"3.*4"),
        ({"features": np.ones(4, np.float32)}, r"features"),
        ({"labels": np.zeros((4, 2, 2), np.uint8)}, r"labels"),
        ({"labels": np.array([0, 1, 5, 0]), "num_classes": 2}, r"vertex 2\b.*5"),
        ({"train_mask": np.ones(3, np.bool_)}, r"train_mask"),
        ({"edge_weight": np.ones(7, np.float32)}, r"edge_weight|weight"),
    ],
)
def test_arrays_of_the_wrong_shape_are_refused_in_python_too(fields, pattern):
    with pytest.raises(dorylus.GraphError, match=pattern):
        dorylus.Graph.from_edges([0, 1, 2], [1, 2, 3], 4, **fields)


@pytest.mark.parametrize(
    "spec",
    ["communities:num_vertices=300.5", "communities:num_vertices='a'", "rmat:scale=99", "ring:num_vertices=10.5"],
)
def test_a_generator_given_the_wrong_kind_of_number_is_refused(refused, spec):
    assert spec.split(":")[0] in refused("train", spec, "--epochs", 1)


@pytest.mark.parametrize("options", ["step_size=abc", "step_size=0"])
def test_a_schedule_that_fails_in_use_ends_without_a_traceback(capsys, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["train", "ring", "--epochs", "2", "--lr-schedule", "StepLR", "--lr-schedule-options", options])
    assert end.value.code in (1, 2)
    assert "--lr-schedule-options" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        ({"run_dir": "a\0b"}, "has a NUL byte"),
        ({"run_dir": b"a\xff".decode(errors="surrogateescape")}, "is no UTF-8"),
        ({"run_dir": "a" * 256}, "a name in it 255"),
        ({"lr": 1e38}, r"at most 1e\+30"),
        ({"weight_decay": {"*": 1e38}}, r"at most 1e\+30"),
        ({"revive_s": float("inf")}, "revive_s ?= ?inf"),
        ({"checkpoint_every": 10**18}, "at most 1000000000"),
    ],
)
def test_settings_out_of_range_are_refused_in_python_and_in_files_too(refused, tmp_path, settings, pattern):
    with pytest.raises(dorylus.ConfigError, match=pattern):
        dorylus.train(dorylus.ring(num_vertices=20), dorylus.gcn(), epochs=1, **settings)
    if "run_dir" in settings:  # the folder of a run is not written into its file
        return
    (tmp_path / "mine.toml").write_text(tomli_w.dumps({"graph": {"source": "ring"}, "training": settings}))
    assert_matches(refused("train", "--config", "mine.toml"), pattern)


def test_weights_that_have_no_room_are_refused_before_they_are_made(monkeypatch, tmp_path):
    monkeypatch.setattr("dorylus.process_memory.free_bytes", lambda: 100_000)
    with pytest.raises(dorylus.ConfigError, match=r"has 5,[\d,]+ weights for 16 features and 4 classes, which take"):
        dorylus.train(dorylus.ring(num_vertices=20), dorylus.gcn(hidden=256), epochs=1, run_dir=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
