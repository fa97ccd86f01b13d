"""Scores of predictions against labels, on the vertices of a mask."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dorylus.graph import Graph


def classes_of(logits: NDArray[np.float32], multilabel: bool) -> NDArray[np.int64] | NDArray[np.uint8]:
    """The class of the largest logit; for many labels, 1 where the logit is positive."""
    return (logits > 0).astype(np.uint8) if multilabel else logits.argmax(axis=1).astype(np.int64)


def evaluate(graph: Graph, logits: NDArray[np.float32]) -> dict[str, float]:
    """Accuracy, micro and macro F1 on each non-empty mask, named ``val_accuracy`` and so on."""
    predicted = classes_of(logits, graph.multilabel)
    found: dict[str, float] = {}
    for part in ("train", "val", "test"):
        mask = getattr(graph, f"{part}_mask")
        if mask.any() and graph.labels is not None:
            scores = class_scores(predicted[mask], graph.labels[mask], graph.num_classes)
            found |= {f"{part}_{name}": score for name, score in scores.items()}
    return found


def class_scores(predicted: NDArray[np.generic], labels: NDArray[np.generic], num_classes: int) -> dict[str, float]:
    """Accuracy (for many labels: of single decisions), micro F1 and macro F1.

    A class that neither occurs nor is predicted has no F1 and does not count in the macro mean.
    """
    if labels.ndim == 1:
        columns = np.arange(num_classes)
        guess, truth = predicted[:, None] == columns, labels[:, None] == columns
        accuracy = float((predicted == labels).mean())
    else:
        guess, truth = predicted.astype(np.bool_), labels.astype(np.bool_)
        accuracy = float((guess == truth).mean())
    hits, guesses, truths = (guess & truth).sum(0), guess.sum(0), truth.sum(0)
    seen = (guesses + truths) > 0
    each = 2 * hits[seen] / (guesses + truths)[seen]
    micro = 2 * hits.sum() / max(1, (guesses + truths).sum())
    return {"accuracy": accuracy, "micro_f1": float(micro), "macro_f1": float(each.mean()) if seen.any() else 0.0}


def score_of(scores: Mapping[str, float], multilabel: bool) -> float | None:
    """The one number that decides what is best: validation accuracy, or micro F1 where labels are many."""
    return scores.get("val_micro_f1" if multilabel else "val_accuracy")
