import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dorylus
from dorylus.runtime import Outputs
from dorylus.training.evaluation import ScoreTally, classes_of, evaluate, score_of


def class_scores(predicted, labels, num_classes):
    tally = ScoreTally(num_classes)
    tally.add(predicted, labels)
    return tally.scores()


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


def test_no_predictions_and_no_labels_have_an_f1_of_zero():
    zeros = np.zeros((3, 2), np.uint8)
    assert class_scores(zeros, zeros, 2) == {"accuracy": 1.0, "micro_f1": 0.0, "macro_f1": 0.0}


def test_the_largest_logit_is_the_class_and_positive_ones_are_the_labels():
    logits = np.array([[0.5, -1.0, 2.0], [-3.0, -1.0, -2.0]], np.float32)
    assert classes_of(logits, multilabel=False).tolist() == [2, 1]
    assert classes_of(logits, multilabel=True).tolist() == [[1, 0, 1], [0, 0, 0]]


def outputs_of(rows, sizes, order=None):
    """The rows in blocks of these sizes, the vertices in some order."""
    order = np.arange(len(rows), dtype=np.int32) if order is None else order
    cuts = np.split(order, np.cumsum(sizes)[:-1])
    return Outputs(len(rows), rows.shape[1], lambda: ((part, rows[part]) for part in cuts))


def a_graph(**masks):
    labels = np.array([0, 1, 1, 0])
    return dorylus.Graph.from_edges([0, 1], [1, 2], 4, labels=labels, num_classes=2, **masks)


def test_each_mask_is_scored_by_its_own_vertices():
    logits = np.array([[1, 0], [0, 1], [1, 0], [1, 0]], np.float32)
    graph = a_graph(train_mask=[True, True, False, False], test_mask=[False, False, True, True])
    found = evaluate(graph, outputs_of(logits, [4]))
    assert (found["train_accuracy"], found["test_accuracy"]) == (1.0, 0.5)
    assert not any(name.startswith("val_") for name in found)  # it has no vertices


def test_validation_decides_by_accuracy_or_by_micro_f1():
    scores = {"val_accuracy": 0.5, "val_micro_f1": 0.25}
    assert score_of(scores, multilabel=False) == 0.5
    assert score_of(scores, multilabel=True) == 0.25
    assert score_of({}, multilabel=False) is None


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30), st.integers(0, 2**32))
def test_a_tally_of_blocks_is_that_of_all_at_once(pairs, seed):
    predicted, labels = np.array(pairs).T
    cuts = np.sort(np.random.default_rng(seed).integers(0, len(labels) + 1, 3))
    tally = ScoreTally(4)
    for some, truth in zip(np.split(predicted, cuts), np.split(labels, cuts), strict=True):
        tally.add(some, truth)
    assert tally.scores() == class_scores(predicted, labels, 4)


@given(st.integers(1, 20), st.integers(0, 20), st.integers(0, 2**32))
def test_a_multilabel_tally_of_blocks_is_that_of_all_at_once(rows, cut, seed):
    predicted, labels = np.random.default_rng(seed).integers(0, 2, (2, rows, 3)).astype(np.uint8)
    tally = ScoreTally(3)
    tally.add(predicted[:cut], labels[:cut])
    tally.add(predicted[cut:], labels[cut:])
    assert tally.scores() == class_scores(predicted, labels, 3)


def test_a_tally_without_vertices_has_no_scores():
    tally = ScoreTally(3)
    tally.add(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert tally.scores() == {}


@given(st.integers(0, 2**32), st.booleans())
def test_scores_do_not_see_in_which_blocks_and_order_vertices_come(seed, multilabel):
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((40, 4), dtype=np.float32)
    labels = rng.integers(0, 2, (40, 4)) if multilabel else rng.integers(0, 4, 40)
    part = rng.integers(0, 3, 40)
    masks = {"train_mask": part == 0, "val_mask": part == 1, "test_mask": part == 2}
    graph = dorylus.Graph.from_edges([0], [1], 40, labels=labels, num_classes=4, **masks)
    found = evaluate(graph, outputs_of(logits, [7, 0, 20, 13], rng.permutation(40).astype(np.int32)))
    predicted = classes_of(logits, multilabel)
    for name, mask in masks.items():
        expected = class_scores(predicted[mask], graph.labels[mask], 4)
        assert {k: v for k, v in found.items() if k.startswith(name[:-4])} == {
            f"{name[:-4]}{k}": v for k, v in expected.items()
        }


def test_a_graph_without_labels_has_no_scores():
    graph = dorylus.Graph.from_edges([0], [1], 2)
    assert evaluate(graph, outputs_of(np.zeros((2, 2), np.float32), [2])) == {}
