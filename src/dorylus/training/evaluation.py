"""Scores of predictions against labels, and decisions by them: which weights are the best, and when to stop."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.config import RunConfig
from dorylus.errors import DivergedError
from dorylus.graph import Graph, drop_pages
from dorylus.runs import RunProgress
from dorylus.runtime import Outputs


def classes_of(logits: NDArray[np.float32], multilabel: bool) -> NDArray[np.int64] | NDArray[np.uint8]:
    """The class of the largest logit; for many labels, 1 where the logit is positive."""
    return (logits > 0).astype(np.uint8) if multilabel else logits.argmax(axis=1).astype(np.int64)


def evaluate(graph: Graph, outputs: Outputs) -> dict[str, float]:
    """Accuracy, micro and macro F1 on each non-empty mask, named ``val_accuracy`` and so on.

    Refuses outputs that are not finite, or so large that the sum of their squares is not: they determine no class.
    """
    labels = graph.labels
    if labels is None:
        return {}
    tallies = {part: ScoreTally(graph.num_classes) for part in ("train", "val", "test")}
    try:
        for vertices, rows in outputs.blocks():
            with np.errstate(all="ignore"):
                squares = np.dot(flat := rows.reshape(-1), flat)
            if not math.isfinite(squares):
                raise DivergedError(
                    "the model's outputs are not finite, or so large that the sum of their squares is not"
                )
            predicted, truth = classes_of(rows, graph.multilabel), labels[vertices]
            for part, tally in tallies.items():
                mask = getattr(graph, f"{part}_mask")[vertices]
                tally.add(predicted[mask], truth[mask])
    finally:
        graph.check_files()  # scores against labels that have changed are refused
    for read in (labels, graph.train_mask, graph.val_mask, graph.test_mask):
        drop_pages(read)
    return {f"{part}_{name}": score for part, tally in tallies.items() for name, score in tally.scores().items()}


class ScoreTally:
    """Counts of predicted and true classes, from which scores follow."""

    def __init__(self, num_classes: int) -> None:
        self._hits, self._guesses, self._truths = np.zeros((3, num_classes), np.int64)
        self._right = self._decisions = 0

    def add(self, predicted: NDArray[Any], labels: NDArray[Any]) -> None:
        """Count some vertices."""
        self._right += int((predicted == labels).sum())
        self._decisions += labels.size
        if labels.ndim == 1:
            size = self._hits.size
            counted = (predicted[predicted == labels], predicted, labels)
            hits, guesses, truths = (np.bincount(each[each >= 0], minlength=size)[:size] for each in counted)
        else:
            guess, truth = predicted.astype(np.bool_), labels.astype(np.bool_)
            hits, guesses, truths = (guess & truth).sum(0), guess.sum(0), truth.sum(0)
        self._hits += hits
        self._guesses += guesses
        self._truths += truths

    def scores(self) -> dict[str, float]:
        """Accuracy (for many labels: of single decisions), micro F1 and macro F1; empty where nothing was counted.

        A class that neither occurs nor is predicted has no F1 and does not count in the macro mean.
        """
        if not self._decisions:
            return {}
        both = self._guesses + self._truths
        seen = both > 0
        each = 2 * self._hits[seen] / both[seen]
        micro = 2 * self._hits.sum() / max(1, both.sum())
        accuracy = self._right / self._decisions
        return {"accuracy": accuracy, "micro_f1": float(micro), "macro_f1": float(each.mean()) if seen.any() else 0.0}


def score_of(scores: Mapping[str, float], multilabel: bool) -> float | None:
    """The score that decides which weights are best: validation accuracy, or micro F1 for many labels."""
    return scores.get("val_micro_f1" if multilabel else "val_accuracy")


@dataclass(frozen=True)
class EarlyStopping:
    """Whether a score is the best so far, why the run stops with it (None: it does not), and whether it is near its
    target, so that epochs become synchronous."""

    best: bool
    stop: str | None
    near_target: bool


def early_stopping(progress: RunProgress, score: float, epoch: int, config: RunConfig) -> EarlyStopping:
    """Add a score to the progress, and decide by the settings."""
    best = progress.note(score, epoch)
    target, margin = config.target_accuracy, config.sync_margin
    if target is not None and score >= target:
        return EarlyStopping(best, "target_accuracy", near_target=False)
    stop = "patience" if config.patience is not None and progress.stale >= config.patience else None
    near = target is not None and margin is not None and score >= target - margin
    return EarlyStopping(best, stop, near)


def is_synchronous(config: RunConfig, progress: RunProgress) -> bool:
    """Whether epochs are synchronous: by the mode, or since an asynchronous run came near its target."""
    return config.mode != "async" or progress.exact_from is not None


def last_startable_epoch(config: RunConfig, progress: RunProgress, until: int) -> int:
    """The last epoch, from 0, that may start before the next epoch is over; the run goes up to ``until``.

    It is one further than the staleness bound allows, so that an interval that waits at the bound is counted; and not
    past the next point at which nothing may be in flight: the end, a checkpoint, or an evaluation after which epochs
    may become synchronous.
    """
    epoch = len(progress.losses)
    ahead = epoch if is_synchronous(config, progress) else epoch + config.staleness + 1
    # Servers in other processes may be lost: a run then continues from where nothing was in flight, checkpoint or not.
    saves = config.run_dir is not None or config.cluster != "local"
    stops = [config.checkpoint_every if saves else 0, config.eval_every if config.sync_margin else 0]
    drains = [(epoch // every + 1) * every for every in stops if every]
    return min([ahead, until - 1, *(stop - 1 for stop in drains)])
