import json
import math

import numpy as np
import pytest

import dorylus
from dorylus.cost import Bill
from dorylus.saga.lower import Work
from dorylus.training.result import Result


@pytest.fixture
def graph():
    return dorylus.ring(num_vertices=12, num_classes=3, num_features=4)


def a_result(graph, **changes):
    fields = {
        "model": dorylus.gcn(hidden=5).build(4, 3),
        "losses": [1.0, 0.5],
        "epoch_seconds": [0.25, 0.75],
        "metrics": {"train_accuracy": 0.9, "val_accuracy": 0.8, "test_accuracy": 0.7123456789, "test_macro_f1": 0.6},
        "peak_memory_bytes": 123,
        "server_peak_memory_bytes": [],
        "work": Work(22, 100, ()),
        "traffic": {"ghosts": 1000, "weights": 24},
        "ages": {-1: 3, 0: 70, 1: 7},
        "busy": {"cores": 0.123456, "pool": 0.5, "network": 0.0},
        "waits": 4,
        "stopped": "epochs",
        "config": dorylus.RunConfig(threads=1),
        "graph": graph,
    }
    return Result(**(fields | {"bill": Bill(), "pool": {}} | changes))


def test_accuracies_are_read_off_the_metrics(graph):
    result = a_result(graph)
    assert (result.train_accuracy, result.val_accuracy, result.test_accuracy) == (0.9, 0.8, 0.7123456789)


def test_an_accuracy_that_was_not_measured_is_nan(graph):
    assert math.isnan(a_result(graph, metrics={}).test_accuracy)


def test_seconds_are_those_of_all_epochs(graph):
    assert a_result(graph).seconds == 1.0


def test_the_summary_is_plain_data(graph):
    summary = a_result(graph).summary()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["test_accuracy"] == 0.712346
    assert summary["test_macro_f1"] == 0.6
    assert (summary["epochs"], summary["final_loss"], summary["seconds"]) == (2, 0.5, 1.0)
    assert summary["seconds_per_epoch"] == 0.5
    assert summary["work"] == "22 % of naive edge-work"
    assert (summary["work_done"], summary["work_naive"]) == (22, 100)
    assert (summary["precision"], summary["stopped"]) == ("float32", "epochs")


def test_the_summary_has_traffic_ages_and_utilisation(graph):
    summary = a_result(graph).summary()
    assert summary["traffic"] == {"ghosts": 1000, "weights": 24}
    assert summary["ages"] == {"-1": 3, "0": 70, "1": 7}
    assert summary["busy"] == {"cores": 0.1235, "pool": 0.5, "network": 0.0}
    assert summary["waits"] == 4


def test_the_summary_has_the_training_mode(graph):
    config = dorylus.RunConfig(threads=1, mode="async", staleness=2, servers=3)
    summary = a_result(graph, config=config).summary()
    assert (summary["mode"], summary["staleness"], summary["servers"]) == ("async", 2, 3)


def test_a_run_of_no_epochs_has_a_summary_too(graph):
    summary = a_result(graph, losses=[], epoch_seconds=[]).summary()
    assert (summary["epochs"], summary["final_loss"], summary["seconds_per_epoch"]) == (0, None, None)


@pytest.mark.parametrize("name", ["precision", "ghost_precision"])
def test_an_approximation_is_reported(graph, name):
    assert a_result(graph).summary()[name] == "float32"
    assert a_result(graph, config=dorylus.RunConfig(**{name: "bf16"})).summary()[name] == "bf16"


def test_predictions_come_from_the_model_and_the_graph_of_the_run(graph):
    result = a_result(graph)
    np.testing.assert_array_equal(
        result.predict("embeddings", layer=0),
        dorylus.predict(graph, result.model, "embeddings", layer=0, config=result.config),
    )


def test_the_graph_is_not_printed(graph):
    assert "Graph(" not in repr(a_result(graph))
