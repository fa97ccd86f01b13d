import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dorylus
from dorylus.training.evaluation import class_scores, classes_of, evaluate, score_of

numbers = st.integers(0, 3)


def f1_by_definition(guess, truth):
    """F1 of one class, or None where it neither occurs nor is predicted."""
    hits = (guess & truth).sum()
    wrong, missed = (guess & ~truth).sum(), (~guess & truth).sum()
    return None if hits + wrong + missed == 0 else hits / (hits + (wrong + missed) / 2)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30))
def test_scores_of_one_label_are_those_of_their_definitions(pairs):
    predicted, labels = np.array(pairs).T
    found = class_scores(predicted, labels, 5)
    each = [f1_by_definition(predicted == k, labels == k) for k in range(5)]
    assert found["accuracy"] == pytest.approx(np.mean(predicted == labels))
    assert found["micro_f1"] == pytest.approx(found["accuracy"])  # one guess, one truth a vertex
    assert found["macro_f1"] == pytest.approx(np.mean([score for score in each if score is not None]))


@given(st.integers(1, 20), st.integers(0, 2**32))
def test_scores_of_many_labels_are_those_of_their_definitions(rows, seed):
    rng = np.random.default_rng(seed)
    predicted, labels = rng.integers(0, 2, (2, rows, 3)).astype(np.uint8)
    found = class_scores(predicted, labels, 3)
    each = [f1_by_definition(predicted[:, k] == 1, labels[:, k] == 1) for k in range(3)]
    seen = [score for score in each if score is not None]
    assert found["accuracy"] == pytest.approx(np.mean(predicted == labels))
    assert found["micro_f1"] == pytest.approx(f1_by_definition(predicted.ravel() == 1, labels.ravel() == 1) or 0.0)
    assert found["macro_f1"] == pytest.approx(np.mean(seen) if seen else 0.0)


def test_nothing_predicted_and_nothing_there_scores_nothing():
    zeros = np.zeros((3, 2), np.uint8)
    assert class_scores(zeros, zeros, 2) == {"accuracy": 1.0, "micro_f1": 0.0, "macro_f1": 0.0}


def test_the_largest_logit_is_the_class_and_positive_ones_are_the_labels():
    logits = np.array([[0.5, -1.0, 2.0], [-3.0, -1.0, -2.0]], np.float32)
    assert classes_of(logits, multilabel=False).tolist() == [2, 1]
    assert classes_of(logits, multilabel=True).tolist() == [[1, 0, 1], [0, 0, 0]]


def a_graph(**masks):
    labels = np.array([0, 1, 1, 0])
    return dorylus.Graph.from_edges([0, 1], [1, 2], 4, labels=labels, num_classes=2, **masks)


def test_each_mask_is_scored_by_its_own_vertices():
    logits = np.array([[1, 0], [0, 1], [1, 0], [1, 0]], np.float32)
    graph = a_graph(train_mask=[True, True, False, False], test_mask=[False, False, True, True])
    found = evaluate(graph, logits)
    assert (found["train_accuracy"], found["test_accuracy"]) == (1.0, 0.5)
    assert not any(name.startswith("val_") for name in found)  # nobody is in it


def test_validation_decides_by_accuracy_or_by_micro_f1():
    scores = {"val_accuracy": 0.5, "val_micro_f1": 0.25}
    assert score_of(scores, multilabel=False) == 0.5
    assert score_of(scores, multilabel=True) == 0.25
    assert score_of({}, multilabel=False) is None
