import json
import os
import time
import tomllib

import pytest

from dorylus.config import RunConfig
from dorylus.errors import ConfigError, DataError
from dorylus.graph import Graph
from dorylus.runs.run_folder import RunFolder, RunSpec, check_free, make_folder, read_run_toml

SPEC = RunSpec(
    graph={"source": "cora", "root": "/data", "row_normalise": True}, model={"name": "gcn", "hidden": [16, 8]}
)
CONFIG = RunConfig(epochs=3, weight_decay={"*.bias": 0.5}, optimizer_options={"betas": (0.5, 0.9)}, patience=4)


def test_a_run_opens_with_the_settings_it_was_created_with(tmp_path):
    made = RunFolder.create(tmp_path / "deep" / "run", SPEC, CONFIG)
    assert RunFolder.open(tmp_path / "deep" / "run") == made
    assert made.config.run_dir == str(tmp_path / "deep" / "run")
    assert made.config.weight_decay == {"*.bias": 0.5}


def test_every_resolved_setting_is_written_down(tmp_path):
    written = tomllib.loads((RunFolder.create(tmp_path, SPEC, CONFIG).path / "run.toml").read_text())
    assert written["graph"] == SPEC.graph
    assert written["model"] == SPEC.model
    given = {name for name, value in CONFIG.to_dict().items() if value is not None}
    assert set(written["training"]) == given


def test_a_run_that_was_moved_knows_its_new_place(tmp_path):
    RunFolder.create(tmp_path / "old", SPEC, CONFIG).path.rename(tmp_path / "new")
    assert RunFolder.open(tmp_path / "new").config.run_dir == str(tmp_path / "new")


def test_a_run_of_python_objects_writes_no_empty_sections(tmp_path):
    run = RunFolder.create(tmp_path, None, RunConfig())
    assert "[graph]" not in (run.path / "run.toml").read_text()
    assert RunFolder.open(tmp_path).spec == RunSpec()


def test_creating_a_run_writes_only_the_settings(tmp_path):
    RunFolder.create(tmp_path / "run", SPEC, CONFIG)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.toml"]


def test_a_folder_with_another_run_is_refused_with_both_cures(tmp_path):
    RunFolder.create(tmp_path, SPEC, CONFIG)
    with pytest.raises(ConfigError, match=r"already holds a run: continue it by `dorylus resume .*another run_dir"):
        RunFolder.create(tmp_path, SPEC, RunConfig())
    assert RunFolder.open(tmp_path).config.epochs == 3


def test_a_folder_that_is_there_without_a_run_may_be_used(tmp_path):
    (tmp_path / "notes.txt").touch()
    check_free(tmp_path)
    assert RunFolder.create(tmp_path, SPEC, CONFIG).path == tmp_path


def test_a_file_is_no_run_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file, but a run is a folder"):
        RunFolder.create(tmp_path / "file", SPEC, CONFIG)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be made"):
        RunFolder.create(tmp_path / "file" / "run", SPEC, CONFIG)


def test_opening_a_folder_that_is_no_run_is_refused_with_the_reason(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no run \(it has no run.toml\)"):
        RunFolder.open(tmp_path)
    with pytest.raises(ConfigError, match="does not exist: give the folder"):
        RunFolder.open(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("epochs = ", DataError, "is not TOML"),
        ("[trainin]\nepochs = 3", ConfigError, "unknown section 'trainin'.*Did you mean 'training'"),
        ("training = 3", ConfigError, r"write its settings under a line \[training\]"),
        ("format = 9", DataError, "has format 9, and this version of Dorylus reads 1"),
    ],
)
def test_a_bad_run_toml_is_refused_with_the_cure(tmp_path, text, error, message):
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(error, match=message):
        read_run_toml(tmp_path / "run.toml")


def test_an_unknown_setting_in_a_run_toml_is_refused_with_the_nearest(tmp_path):
    (tmp_path / "run.toml").write_text("[training]\nepoch = 3")
    with pytest.raises(ConfigError, match=r"^[^ ]*/run\.toml: unknown setting 'epoch': did you mean 'epochs'"):
        RunFolder.open(tmp_path)


def test_a_setting_that_is_changed_need_not_be_good_in_the_file(tmp_path):
    (tmp_path / "run.toml").write_text('[training]\nservers = 2\nintervals = 6\npool = "mine"\nfunctions = 3')
    with pytest.raises(ConfigError, match=r"^[^ ]*/run\.toml: pool = 'mine' is unknown: .* is registered in each"):
        RunFolder.open(tmp_path, {"servers": 2})
    config = RunFolder.open(tmp_path, {"pool": "threads", "servers": 3}).config
    assert (config.pool, config.functions, config.servers, config.intervals) == ("threads", None, 3, None)


def test_a_run_toml_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*No such file"):
        read_run_toml(tmp_path / "run.toml")


def test_metrics_are_none_until_they_are_written_and_null_where_not_finite(tmp_path):
    run = RunFolder.create(tmp_path, SPEC, CONFIG)
    assert run.read_metrics() is None
    run.write_metrics({"test_accuracy": 0.5, "losses": (1.0, float("nan"))})
    assert run.read_metrics() == {"test_accuracy": 0.5, "losses": [1.0, None]}
    assert json.loads(run.metrics.read_text())["test_accuracy"] == 0.5
    assert not list(tmp_path.glob(".partial-*"))


def test_a_run_that_does_not_name_its_graph_is_refused_with_the_cure():
    with pytest.raises(ConfigError, match=r"which graph.*write source .* into the section \[graph\]"):
        RunSpec({"root": "/data"}).load_graph()


@pytest.mark.parametrize("make", [RunSpec.load_graph, RunSpec.build_model])
def test_the_error_for_a_run_of_python_objects_requests_them_again(make):
    with pytest.raises(ConfigError, match=r"from Python.*dorylus\.resume\(run_dir, graph, model\).*predict_from"):
        make(RunSpec())


def test_a_data_set_is_not_fetched_without_permission(tmp_path):
    with pytest.raises(DataError, match="with download=False, cora lacks 8 of its 8 files"):
        RunSpec({"source": "cora", "root": str(tmp_path)}).load_graph(download=False)
    with pytest.raises(DataError, match="with download=False, cora lacks 8 of its 8 files"):
        RunSpec({"source": "cora", "root": str(tmp_path), "download": False}).load_graph()


def test_graphs_that_are_never_fetched_load_without_download():
    assert RunSpec({"source": "ring:num_vertices=10"}).load_graph(download=False).num_vertices == 10


def test_a_run_that_does_not_name_its_model_is_refused_with_the_cure():
    with pytest.raises(ConfigError, match=r"which model.*write name"):
        RunSpec(model={"hidden": 3}).build_model()


def test_the_model_is_built_again_from_its_name_and_options():
    recipe = RunSpec(model={"name": "gcn", "hidden": 24}).build_model()
    assert (recipe.name, recipe.options["hidden"]) == ("gcn", 24)


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000])
def test_a_damaged_result_is_reported_in_one_sentence(tmp_path, text):
    run = RunFolder.create(tmp_path / "run", SPEC, CONFIG)
    run.metrics.write_text(text)
    with pytest.raises(DataError, match=r"metrics\.json is damaged \(.*\): remove it"):
        run.read_metrics()


def test_the_error_for_a_moved_graph_names_it_and_a_new_source_finds_it(tmp_path):
    Graph.from_edges([0, 1], [1, 2], name="three").save(tmp_path / "old")
    run = RunFolder.create(tmp_path / "run", RunSpec(graph={"source": str(tmp_path / "old")}), CONFIG)
    assert run.load_graph().name == "three"
    (tmp_path / "old").rename(tmp_path / "new")
    sentence = r"the run .*/run was trained on .*/old, which is not there\. Put it back, .* \[graph\] of"
    with pytest.raises(DataError, match=sentence):
        run.load_graph()
    written = (tmp_path / "run" / "run.toml").read_text()
    (tmp_path / "run" / "run.toml").write_text(written.replace(str(tmp_path / "old"), str(tmp_path / "new")))
    assert RunFolder.open(tmp_path / "run").load_graph().name == "three"


@pytest.mark.parametrize(
    "name", ["log.jsonl", "used.json", "used.ledger", "lock", "checkpoints/epoch-000001/state.json"]
)
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_folder_that_holds_a_link_or_a_pipe_is_refused_and_neither_is_opened(name, kind, tmp_path):
    RunFolder.create(tmp_path / "run", SPEC, CONFIG)
    (tmp_path / "outside").write_text("not ours")
    entry = tmp_path / "run" / name
    entry.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        entry.symlink_to(tmp_path / "outside")
    else:
        os.mkfifo(entry)
    with pytest.raises(ConfigError, match=f"{entry} is a link or no regular file.*put a copy"):
        RunFolder.open(tmp_path / "run")
    assert (tmp_path / "outside").read_text() == "not ours"


@pytest.mark.parametrize(
    "change",
    [
        {"server_ns": {"graph": {"training": 10**500}}},
        {"server_ns": {"graph": {"training": -1}}},
        {"service": [1]},
        {"functions": 3},
        {"server_ns": None},
    ],
)
def test_an_invalid_use_is_refused_with_the_cure(change, tmp_path):
    run = RunFolder.create(tmp_path / "run", SPEC, CONFIG)
    used = {"server_ns": {"graph": {"training": 5}}, "functions": {}, "moved_bytes": {}, "service": None}
    run.write_used(used)
    assert run.read_used() == used
    run.used.write_text(json.dumps(used | change))
    with pytest.raises(DataError, match=r"used\.json is damaged .*: remove it"):
        run.read_used()


def test_a_run_toml_of_zeros_is_refused_before_it_is_in_memory(tmp_path, fill_with_zeros, little_memory):
    fill_with_zeros(tmp_path / "run.toml")
    with little_memory(), pytest.raises(DataError, match=r"cannot read .*run\.toml has more than 4,194,304 bytes"):
        RunFolder.open(tmp_path)


def test_a_run_toml_of_endless_depth_is_one_sentence(tmp_path):
    (tmp_path / "run.toml").write_text(f"a = {'[' * 100_000}")
    with pytest.raises(DataError, match="is not TOML"):
        RunFolder.open(tmp_path)


def test_results_and_uses_of_zeros_are_refused_before_they_are_in_memory(tmp_path, fill_with_zeros, little_memory):
    run = RunFolder.create(tmp_path, SPEC, CONFIG)
    fill_with_zeros(run.ledger)
    with little_memory():
        assert run.read_used() is None, "a ledger that a crash damaged is passed over"
    for path, read in ((run.metrics, run.read_metrics), (run.used, run.read_used)):
        fill_with_zeros(path)
        with little_memory(), pytest.raises(DataError, match=f"{path} is damaged .*has more than .*: remove it"):
            read()


def test_the_time_of_the_first_graph_load_is_returned_once():
    spec = RunSpec({"source": "ring:num_vertices=10"})
    assert spec.take_loading_since_s() is None
    before_s = time.perf_counter()
    spec.load_graph()
    between_s = time.perf_counter()
    spec.load_graph()
    assert before_s <= spec.take_loading_since_s() <= between_s
    assert spec.take_loading_since_s() is None
    assert spec == RunSpec({"source": "ring:num_vertices=10"})


@pytest.mark.parametrize("name", ["lock", "used.ledger", "log.jsonl", "checkpoints", "best"])
def test_a_new_run_does_not_write_through_links_that_lie_in_its_folder(name, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "run" / name).symlink_to(tmp_path / "precious")
    with pytest.raises(ConfigError, match=f"{name} is a link or no regular file"):
        make_folder(tmp_path / "run")
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_run_whose_checkpoints_are_a_link_to_a_folder_is_refused(tmp_path):
    RunFolder.create(tmp_path / "run", SPEC, CONFIG)
    (tmp_path / "others").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "others")
    with pytest.raises(ConfigError, match="checkpoints is a link or no regular file"):
        RunFolder.open(tmp_path / "run")


def test_an_empty_name_is_not_taken_for_this_folder():
    with pytest.raises(ConfigError, match="run_dir is empty"):
        make_folder("")
