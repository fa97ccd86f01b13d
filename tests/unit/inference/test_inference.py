import threading

import numpy as np
import pytest
import torch

import dorylus
from dorylus.config import RunConfig
from dorylus.errors import CheckpointError, ConfigError
from dorylus.inference import predict_from
from dorylus.runs.run_folder import RunFolder, RunSpec
from dorylus.saga import reference

SOURCE = "communities:num_vertices=120,num_classes=3,num_features=6,average_degree=5"


@pytest.fixture(scope="module")
def graph():
    return dorylus.load(SOURCE)


@pytest.fixture(scope="module")
def program():
    return dorylus.gcn(hidden=[7, 5], num_layers=3, activation="tanh").build(6, 3, seed=2)


def plain(**settings):
    return RunConfig(threads=1, **settings)


@pytest.mark.parametrize("reorder", ["none", "degree", "bfs"])
@pytest.mark.parametrize("intervals", [None, 5])
def test_logits_are_the_references_in_the_graphs_own_order(graph, program, reorder, intervals):
    with torch.no_grad():
        expected = reference.forward(program, graph).numpy()
    found = dorylus.predict(graph, program, config=plain(reorder=reorder, intervals=intervals))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_classes_are_those_of_the_largest_logits(graph, program):
    logits = dorylus.predict(graph, program, config=plain())
    np.testing.assert_array_equal(dorylus.predict(graph, program, "classes", config=plain()), logits.argmax(axis=1))


@pytest.mark.parametrize(("layer", "columns"), [(0, 7), (1, 5), (-1, 5), (-2, 7)])
def test_embeddings_are_a_hidden_layers_output(graph, program, layer, columns):
    found = dorylus.predict(graph, program, "embeddings", layer=layer, config=plain())
    head = dorylus.Program([program.layer(k) for k in range(layer % 2 + 1)])
    with torch.no_grad():
        expected = reference.forward(head, graph).numpy()
    assert found.shape == (120, columns)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["gcn", "gat", "sage", "gin"])
def test_every_model_gives_embeddings(graph, name):
    program = getattr(dorylus, name)(hidden=4).build(6, 3)
    found = dorylus.predict(graph, program, "embeddings", config=plain())
    with torch.no_grad():
        expected = reference.forward(dorylus.Program([program.layer(0)]), graph).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", [2, -3])
def test_a_layer_that_is_not_hidden_is_refused(graph, program, layer):
    with pytest.raises(ConfigError, match="the model has 2 hidden layers"):
        dorylus.predict(graph, program, "embeddings", layer=layer)


def test_a_single_layer_has_no_embeddings(graph):
    with pytest.raises(ConfigError, match="use logits"):
        dorylus.predict(graph, dorylus.gcn(num_layers=1).build(6, 3), "embeddings")


def test_an_unknown_prediction_is_refused_with_the_nearest(graph, program):
    with pytest.raises(ConfigError, match="Did you mean 'logits'"):
        dorylus.predict(graph, program, "logit")


def test_a_graph_without_labels_can_be_predicted(graph, program):
    bare = dorylus.Graph(graph.indptr, graph.indices, features=graph.features)
    np.testing.assert_array_equal(
        dorylus.predict(bare, program, config=plain()), dorylus.predict(graph, program, config=plain())
    )


@pytest.mark.parametrize("sparse", [False, True])
def test_a_graph_with_other_features_is_refused_with_the_cure(graph, sparse):
    features = dorylus.SparseFeatures.from_dense(graph.features) if sparse else graph.features
    other = dorylus.Graph(graph.indptr, graph.indices, features=features)
    with pytest.raises(ConfigError, match="made for 4 features, but graph 'graph' has 6"):
        dorylus.predict(other, dorylus.gcn().build(4, 3))


def test_a_graph_without_vertices_ends_in_an_error_and_not_in_waiting(program):
    empty = dorylus.Graph(np.zeros(1, np.int64), np.zeros(0, np.int32), features=np.zeros((0, 6), np.float32))
    outcome = []

    def work():
        try:
            outcome.append(dorylus.predict(empty, program, config=plain(deadline_s=0.2)))
        except dorylus.DorylusError as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout=5)
    assert outcome, "it still waits"
    assert isinstance(outcome[0], dorylus.DorylusError)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory, graph):
    """A finished run that knows its graph and model, and its result."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    spec = RunSpec({"source": SOURCE}, {"name": "gcn", "hidden": 4})
    with dorylus.Trainer(
        graph, spec.build_model(), spec=spec, run_dir=folder, epochs=6, eval_every=2, keep="best", threads=1
    ) as trainer:
        return folder, trainer.run().result()


def test_a_run_folder_predicts_the_same_as_its_result(run_dir):
    folder, result = run_dir
    np.testing.assert_array_equal(predict_from(folder), result.predict())
    np.testing.assert_array_equal(predict_from(folder, "classes"), result.predict("classes"))
    np.testing.assert_array_equal(predict_from(folder, "embeddings", 0), result.predict("embeddings", layer=0))


def test_a_model_that_is_not_the_runs_is_refused(run_dir, graph):
    with pytest.raises(CheckpointError, match="is of another model"):
        predict_from(run_dir[0], graph=graph, model=dorylus.gcn(hidden=5))


def test_a_program_that_is_not_the_runs_is_refused_before_the_graph_is_loaded(run_dir, graph, monkeypatch):
    monkeypatch.setattr(RunFolder, "load_graph", lambda folder: pytest.fail("the graph was loaded"))
    other = dorylus.gcn(hidden=4, dropout=0.25).build(graph.num_features, graph.num_classes)
    with pytest.raises(CheckpointError, match=r"layer 0 has dropout=0\.5, and this model's has dropout=0\.25"):
        predict_from(run_dir[0], model=other)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no run \(it has no run\.toml\)"):
        predict_from(tmp_path)
