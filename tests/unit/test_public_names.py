"""The public interface: names, keywords, attributes. Later versions only add to it."""

import inspect
from operator import attrgetter

import numpy as np
import pytest
import torch

import dorylus
from dorylus.saga import reference

NAMES = {
    "Graph", "SparseFeatures", "load", "communities", "rmat", "ring",
    "gcn", "gat", "sage", "gin", "Program", "Layer", "GCN", "GAT", "SAGE", "GIN",
    "train", "resume", "predict", "predict_from", "evaluate_from", "plan_memory", "Trainer", "Result", "RunConfig",
    "DorylusError", "ConfigError", "GraphError", "DataError", "CheckpointError", "TrainingError",
}  # fmt: skip

BUILDERS = {
    "gcn": ["hidden", "num_layers", "dropout"],
    "gat": ["hidden", "heads", "num_layers", "dropout"],
    "sage": ["hidden", "num_layers", "dropout"],
    "gin": ["hidden", "num_layers", "dropout"],
}


def test_the_public_names_are_exactly_these():
    assert set(dorylus.__all__) == NAMES
    assert len(dorylus.__all__) == len(NAMES)


def test_dir_lists_the_public_names():
    assert set(dir(dorylus)) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_public_name_is_there_and_documented(name):
    assert getattr(dorylus, name).__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        dorylus.trian  # noqa: B018


def test_the_version_is_the_packages():
    from importlib.metadata import version

    assert dorylus.__version__ == version("dorylus")


@pytest.mark.parametrize("error", ["ConfigError", "GraphError", "DataError", "CheckpointError", "TrainingError"])
def test_every_error_is_a_dorylus_error(error):
    assert issubclass(getattr(dorylus, error), dorylus.DorylusError)


@pytest.mark.parametrize("source", ["pyg", "dgl", "networkx", "scipy", "ogb"])
def test_a_graph_comes_from_and_goes_to_every_library(source):
    assert callable(getattr(dorylus.Graph, f"from_{source}"))
    assert callable(getattr(dorylus.Graph, f"to_{source}"))


def test_load_takes_a_name_and_a_root(tmp_path):
    assert dorylus.load("ring:num_vertices=5", root=tmp_path).num_vertices == 5


@pytest.mark.parametrize("builder", BUILDERS)
def test_a_builder_takes_its_main_options_in_this_order(builder):
    parameters = inspect.signature(getattr(dorylus, builder)).parameters
    positional = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert positional == BUILDERS[builder]


@pytest.mark.parametrize("name", ["train", "resume", "Trainer", "Trainer.resume", "predict", "predict_from"])
def test_everything_that_computes_takes_a_back_end_as_a_keyword(name):
    parameter = inspect.signature(attrgetter(name)(dorylus)).parameters["backend"]
    assert (parameter.kind, parameter.default) == (parameter.KEYWORD_ONLY, None)


@pytest.fixture(scope="module")
def graph():
    return dorylus.communities(num_vertices=120, num_classes=3, num_features=6, average_degree=5, seed=1)


@pytest.fixture(scope="module")
def result(graph):
    model = dorylus.gcn(hidden=16, num_layers=2, dropout=0.5)
    return dorylus.train(
        graph, model, epochs=4, lr=0.01, weight_decay=5e-4, seed=0, intervals=8, mode="pipe", pool="threads",
        threads=2, run_dir=None,
    )  # fmt: skip


def test_a_result_has_scores_times_memory_and_work(result):
    assert 0 <= result.test_accuracy <= 1
    assert 0 <= result.val_accuracy <= 1
    assert result.peak_memory_bytes > 1_000_000
    assert str(result.work).split()[1:5] == ["%", "of", "naive", "edge-work"]
    assert isinstance(result.model, dorylus.Program)
    assert isinstance(result, dorylus.Result)


def test_a_result_has_traffic_ages_and_utilisation(graph):
    result = dorylus.train(
        graph, dorylus.gcn(), epochs=3, intervals=2, servers=2, parameter_servers=2, partition="range", mode="async",
        staleness=1, weight_update="async", ghost_precision="bf16", threads=2,
    )  # fmt: skip
    assert set(result.traffic) == {"ghosts", "ghost_gradients", "weights", "weight_gradients", "weight_exchange"}
    assert all(-1 <= age <= 2 and count > 0 for age, count in result.ages.items())
    assert set(result.busy) == {"cores", "pool", "network"}
    assert result.waits >= 0


def test_losses_and_times_have_one_entry_per_epoch(result):
    assert len(result.losses) == len(result.epoch_seconds) == 4
    assert all(isinstance(loss, float) for loss in result.losses)
    assert all(seconds > 0 for seconds in result.epoch_seconds)


def test_predictions_have_a_row_for_every_vertex(result, graph):
    assert result.predict("logits").shape == (graph.num_vertices, graph.num_classes)
    assert result.predict("embeddings").shape == (graph.num_vertices, 16)
    assert result.predict().dtype == np.float32
    np.testing.assert_array_equal(result.predict("classes"), result.predict("logits").argmax(axis=1))


def test_predictions_are_in_the_graphs_own_order(result, graph):
    with torch.no_grad():
        expected = reference.forward(result.model, graph).numpy()
    np.testing.assert_allclose(result.predict("logits"), expected, rtol=1e-4, atol=1e-5)


def test_an_unknown_prediction_is_refused_with_the_known_ones(result):
    with pytest.raises(dorylus.ConfigError, match="classes, embeddings, logits"):
        result.predict("labels")


def test_the_loss_of_an_epoch_is_that_of_the_weights_before_its_step(graph):
    program = dorylus.gcn(dropout=0.0).build(graph.num_features, graph.num_classes, seed=5)
    with torch.no_grad():
        before = float(reference.loss_of(program, graph))
    one = dorylus.train(graph, program, epochs=1, lr=0.1, threads=1)
    with torch.no_grad():
        after = float(reference.loss_of(one.model, graph))
    assert one.losses == pytest.approx([before], rel=1e-5)
    assert abs(after - before) > 1e-3
    two = dorylus.train(graph, dorylus.gcn(dropout=0.0), epochs=2, lr=0.1, seed=5, threads=1)
    assert two.losses == pytest.approx([before, after], rel=1e-5)


def test_the_state_of_the_model_loads_into_pygs_convolutions(result):
    convs = result.model.to_pyg()
    assert [type(conv).__name__ for conv in convs] == ["GCNConv", "GCNConv"]
    for index, conv in enumerate(convs):
        state = result.model.layer(index).state_dict()
        assert all(torch.equal(conv.state_dict()[name], state[name]) for name in conv.state_dict())
