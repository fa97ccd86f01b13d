import json
import math

import numpy as np
import pytest

import dorylus
from dorylus.saga.work import Work
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
        "work": Work(22, 100, ()),
        "stopped": "epochs",
        "config": dorylus.RunConfig(threads=1),
        "graph": graph,
    }
    return Result(**(fields | changes))


def test_accuracies_are_read_off_the_metrics(graph):
    result = a_result(graph)
    assert (result.train_accuracy, result.val_accuracy, result.test_accuracy) == (0.9, 0.8, 0.7123456789)


def test_an_accuracy_nobody_could_measure_is_not_a_number(graph):
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


def test_a_run_of_no_epochs_has_a_summary_too(graph):
    summary = a_result(graph, losses=[], epoch_seconds=[]).summary()
    assert (summary["epochs"], summary["final_loss"], summary["seconds_per_epoch"]) == (0, None, None)


def test_an_approximation_is_told(graph):
    assert a_result(graph, config=dorylus.RunConfig(precision="bf16")).summary()["precision"] == "bf16"


def test_predictions_come_from_the_model_and_the_graph_of_the_run(graph):
    result = a_result(graph)
    np.testing.assert_array_equal(
        result.predict("embeddings", layer=0),
        dorylus.predict(graph, result.model, "embeddings", layer=0, config=result.config),
    )


def test_the_graph_is_not_printed(graph):
    assert "Graph(" not in repr(a_result(graph))
