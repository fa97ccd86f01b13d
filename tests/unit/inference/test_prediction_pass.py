"""Predictions under a memory limit, and block by block, are those of a pass that holds everything."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import dorylus
from dorylus.config import RunConfig
from dorylus.errors import ConfigError, DataError
from dorylus.inference import predict_from, prediction_file
from dorylus.inference.prediction_pass import for_one_process
from dorylus.runs.run_folder import RunSpec
from dorylus.saga import reference

pytestmark = pytest.mark.usefixtures("nothing_fits")
MODELS = ["gcn", "gat", "sage", "gin"]
REQUESTS = [("logits", -1), ("classes", -1), ("embeddings", 0), ("embeddings", 1), ("embeddings", 2)]


@pytest.fixture(scope="module", params=[False, True], ids=["one label", "several labels"])
def graph(request, tmp_path_factory):
    """A graph in a store, like a graph that needs a limit."""
    folder = tmp_path_factory.mktemp("graphs") / "store"
    dorylus.communities(
        num_vertices=600, num_classes=3, num_features=6, average_degree=5, multilabel=request.param
    ).save(folder)
    return dorylus.Graph.open(folder)


def program_of(name):
    return getattr(dorylus, name)(hidden=20, num_layers=4).build(6, 3, seed=2)


def limited(folder):
    return {"memory": "1GiB", "scratch_dir": folder}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("what", "layer"), REQUESTS)
def test_a_limit_changes_no_prediction(graph, tmp_path, name, what, layer):
    program = program_of(name)
    expected = dorylus.predict(graph, program, what, layer=layer)
    found = dorylus.predict(graph, program, what, layer=layer, **limited(tmp_path))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_embeddings_of_a_deep_model_are_not_overwritten_by_later_layers(graph, name, layer):
    program = program_of(name)
    with torch.no_grad():
        expected = reference.forward(dorylus.Program([program.layer(k) for k in range(layer + 1)]), graph).numpy()
    found = dorylus.predict(graph, program, "embeddings", layer=layer)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("suffix", ["npy", "parquet"])
@pytest.mark.parametrize(("what", "layer"), REQUESTS[:3])
@pytest.mark.parametrize("limit", [False, True], ids=["no limit", "limit"])
def test_a_file_holds_the_same_as_the_array(graph, tmp_path, suffix, what, layer, limit):
    program, target = program_of("gcn"), tmp_path / f"x.{suffix}"
    expected = dorylus.predict(graph, program, what, layer=layer)
    written = dorylus.predict(graph, program, what, layer=layer, out=target, **(limited(tmp_path) if limit else {}))
    assert (written.path, written.num_vertices) == (target, 600)
    np.testing.assert_allclose(read(target, what), expected, rtol=1e-5, atol=1e-6)


def read(path, what):
    if path.suffix == ".npy":
        return np.load(path)
    from pyarrow import parquet

    table = parquet.read_table(path)
    assert table["vertex"].to_pylist() == list(range(table.num_rows))
    return np.array(table[what].to_pylist())


@pytest.mark.parametrize("reorder", ["degree", "bfs"])
@pytest.mark.parametrize("suffix", ["npy", "parquet"])
def test_rows_computed_in_another_order_are_written_in_the_graphs(graph, tmp_path, reorder, suffix):
    program, target = program_of("sage"), tmp_path / f"x.{suffix}"
    dorylus.predict(graph, program, config=RunConfig(reorder=reorder), out=target)
    np.testing.assert_allclose(read(target, "logits"), dorylus.predict(graph, program), rtol=1e-4, atol=1e-5)


def test_under_a_limit_rows_go_to_the_file_some_vertices_at_a_time(graph, tmp_path, monkeypatch):
    sizes, take = [], prediction_file.slabs

    def noted(blocks, form):
        return take((sizes.append(len(block)) or block for block in blocks), form)

    monkeypatch.setattr(prediction_file, "slabs", noted)
    dorylus.predict(graph, program_of("gcn"), out=tmp_path / "x.npy", **limited(tmp_path))
    assert sum(sizes) == 600
    assert max(sizes) < 300


def test_a_run_of_any_settings_can_be_predicted_under_a_limit():
    trained = RunConfig(servers=4, mode="async", staleness=2, weight_update="async", reorder="bfs", intervals=9)
    found = for_one_process(trained, "2GiB", None)
    assert (found.servers, found.mode, found.reorder, found.intervals) == (1, "pipe", "none", None)
    assert found.memory == "2GiB"
    assert for_one_process(trained, None, None).reorder == "bfs"


def test_new_settings_override_those_of_the_run():
    trained = RunConfig(memory="1GiB", scratch_dir="/somewhere")
    assert (for_one_process(trained, None, None).memory, for_one_process(trained, None, None).scratch_dir) == (
        "1GiB",
        "/somewhere",
    )
    assert (for_one_process(trained, 2**31, "/else").memory, for_one_process(trained, 2**31, "/else").scratch_dir) == (
        "2147483648",
        "/else",
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"memory": "lots"}, "is no amount"), ({"scratch_dir": "/x"}, "scratch_dir without memory")],
)
def test_a_bad_limit_is_refused_with_the_cure(graph, settings, message):
    with pytest.raises(ConfigError, match=message):
        dorylus.predict(graph, program_of("gcn"), **settings)


def test_a_file_without_room_is_refused_before_the_pass(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(prediction_file, "_npy_bytes", lambda form: 1 << 60)
    monkeypatch.setattr("dorylus.inference.prediction_pass.LocalRuntime", None)
    with pytest.raises(DataError, match=r"they take 1048576\.0 TiB, and .* are free there"):
        dorylus.predict(graph, program_of("gcn"), out=tmp_path / "x.npy")


@pytest.fixture
def run(graph, tmp_path):
    """A finished run over a store, its rows normalised, and its result."""
    spec = RunSpec({"source": graph.store, "row_normalise": True}, {"name": "gcn", "hidden": 4})
    with dorylus.Trainer(
        spec.load_graph(), spec.build_model(), spec=spec, run_dir=tmp_path / "run", epochs=2, threads=1, memory="1GiB"
    ) as trainer:
        return tmp_path / "run", trainer.run().result()


def test_a_run_with_a_limit_predicts_under_it(run, tmp_path):
    folder, result = run
    result.predict("classes", out=tmp_path / "x.npy")
    predict_from(folder, "classes", out=tmp_path / "y.npy", memory="2GiB", scratch_dir=tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), result.predict("classes"))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), result.predict("classes"))


def test_a_run_over_a_graph_with_ids_writes_those(run, tmp_path):
    ids = np.arange(600, dtype=np.int64) * 7
    graph = replace(run[1].graph, ids=ids, trust="everything")
    predict_from(run[0], graph=graph, out=tmp_path / "x.parquet")
    from pyarrow import parquet

    assert parquet.read_table(tmp_path / "x.parquet")["vertex"].to_pylist() == ids.tolist()


@pytest.mark.parametrize(
    ("options", "message"), [({"out": "x.csv"}, r"ends in \.npy or \.parquet"), ({"memory": "lots"}, "is no amount")]
)
def test_invalid_options_are_refused_before_the_graph_is_loaded(run, monkeypatch, options, message):
    monkeypatch.setattr(RunSpec, "load_graph", None)
    with pytest.raises(ConfigError, match=message):
        predict_from(run[0], **options)
