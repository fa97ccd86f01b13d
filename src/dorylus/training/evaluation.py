"""Scores of predictions against labels, and decisions by them: which weights are the best, and when to stop."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dorylus.config import RunConfig
from dorylus.errors import DivergedError
from dorylus.graph import Graph, drop_pages
from dorylus.runs import RunProgress, TrainedOn
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
            _check_finite(rows)
            predicted, truth = classes_of(rows, graph.multilabel), labels[vertices]
            for part, tally in tallies.items():
                mask = getattr(graph, f"{part}_mask")[vertices]
                tally.add(predicted[mask], truth[mask])
    finally:
        graph.check_files()  # scores against labels that have changed are refused
    for read in (labels, graph.train_mask, graph.val_mask, graph.test_mask):
        drop_pages(read)
    return {f"{part}_{name}": score for part, tally in tallies.items() for name, score in tally.scores().items()}


def _check_finite(rows: NDArray[np.float32]) -> None:
    with np.errstate(all="ignore"):
        squares = np.dot(flat := rows.reshape(-1), flat)
    if not math.isfinite(squares):
        raise DivergedError("the model's outputs are not finite, or so large that the sum of their squares is not")


class ScoreTally:
    """Counts of predicted and true classes, from which scores follow."""

    def __init__(self, num_classes: int) -> None:
        self._hits, self._guesses, self._truths = np.zeros((3, num_classes), np.int64)
        self._right = self._decisions = self.num_vertices = 0

    def add(self, predicted: NDArray[Any], labels: NDArray[Any]) -> None:
        """Count some vertices."""
        self.num_vertices += len(labels)
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

    def class_scores(self) -> "ClassScores":
        """The scores of every class."""
        return ClassScores(
            precision=self._hits / np.maximum(1, self._guesses),
            recall=self._hits / np.maximum(1, self._truths),
            f1=2 * self._hits / np.maximum(1, self._guesses + self._truths),
            support=self._truths,
        )


@dataclass(frozen=True, eq=False)
class ClassScores:
    """Scores of every class, [classes] each; 0 where a class is never predicted or never true.

    ``support`` is the number of vertices that have the class.
    """

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]
    support: NDArray[np.int64]


MOST_CONFUSED = 1024  # classes, which are 8 MiB of counts
SHOWN_BY_CLASS = ("test", "val", "train", "all")  # the first that has vertices
WIDEST_MATRIX = 12
MOST_CONFUSIONS = 10
MOST_ROWS = 20  # of classes, in a print


@dataclass(frozen=True, eq=False)
class SplitScores:
    """How well the vertices of a split are predicted.

    ``accuracy`` is that of single decisions where vertices have several labels. ``confusion`` is the number of vertices
    by [true, predicted] class; None where vertices have several labels, or there are more than 1,024 classes.
    """

    num_vertices: int
    accuracy: float
    micro_f1: float
    macro_f1: float
    classes: ClassScores = field(repr=False)
    confusion: NDArray[np.int64] | None = field(repr=False)


class ScoreTable(NamedTuple):
    """A table of scores as texts; the first ``num_names`` columns hold names, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_names: int = 1

    def lines(self, most: int) -> list[str]:
        """The table as lines of text, with at most so many rows."""
        kept = [self.columns, *self.rows[:most]]
        widths = [max(map(len, column)) for column in zip(*kept, strict=True)]
        sides = ["<" if position < self.num_names else ">" for position in range(len(widths))]
        cells = [
            [f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)] for row in kept
        ]
        left_out = len(self.rows) - most
        more = [f"... and {left_out:,} more"] if left_out > 0 else []
        return [*([self.title] if self.title else []), *("  ".join(row).rstrip() for row in cells), *more]


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Scores of a model by split: "train", "val" and "test" where the graph has those, and "all" labelled vertices.

    Printed, it shows the scores of every split, and of every class in one; ``to_dict`` has all of them.
    """

    class_names: tuple[str, ...]
    splits: Mapping[str, SplitScores]

    @classmethod
    def of(
        cls, graph: Graph, labels: NDArray[Any], trained_on: TrainedOn, blocks: Iterable[NDArray[np.float32]]
    ) -> Self:
        """The scores of blocks of logits, in the graph's order, against labels by the model's class numbers."""
        size, several, done = trained_on.num_classes, trained_on.multilabel, 0
        masks = {"train": graph.train_mask, "val": graph.val_mask, "test": graph.test_mask}
        masks["all"] = np.ones(len(labels), np.bool_) if several else labels >= 0
        tallies = {part: _SplitTally(size, with_pairs=not several) for part, mask in masks.items() if mask.any()}
        for rows in blocks:
            _check_finite(rows)
            here = slice(done, done + len(rows))
            predicted, truth, done = classes_of(rows, several), labels[here], here.stop
            for part, tally in tallies.items():
                tally.add(predicted[masks[part][here]], truth[masks[part][here]])
        graph.check_files()  # scores against labels that have changed are refused
        names = trained_on.class_names or tuple(map(str, range(size)))
        return cls(names, {part: tally.split_scores() for part, tally in tallies.items()})

    def __repr__(self) -> str:
        if not self.splits:
            return "Evaluation of no vertices"
        overview, by_class, *_ = self.tables(self.shown_split)
        return "\n".join([*overview.lines(MOST_ROWS), "", *by_class.lines(MOST_ROWS)])

    @property
    def shown_split(self) -> str:
        """The split whose classes are shown."""
        return next(each for each in SHOWN_BY_CLASS if each in self.splits)

    def tables(self, split: str) -> list[ScoreTable]:
        """The scores of every split, those of every class in one split, and the confusions of its classes."""
        by_split = [
            (name, f"{each.num_vertices:,}", *_shares(each.accuracy, each.macro_f1, each.micro_f1))
            for name, each in self.splits.items()
        ]
        scores = self.splits[split].classes
        by_class = [
            (name, f"{support:,}", *_shares(*shares))
            for name, support, *shares in zip(
                self.class_names, scores.support, scores.precision, scores.recall, scores.f1, strict=True
            )
        ]
        return [
            ScoreTable("", ["split", "vertices", "accuracy", "macro F1", "micro F1"], by_split),
            ScoreTable(f"{split}, by class", ["class", "vertices", "precision", "recall", "F1"], by_class),
            *self._confusions(split),
        ]

    def _confusions(self, split: str) -> Iterable[ScoreTable]:
        """The matrix of true and predicted classes; of many classes, the pairs that are confused most often."""
        counts, names = self.splits[split].confusion, self.class_names
        if counts is None:
            return
        if len(names) <= WIDEST_MATRIX:
            rows = [(name, *(f"{count:,}" for count in row)) for name, row in zip(names, counts, strict=True)]
            yield ScoreTable(f"{split}, by predicted class", ["true class", *names], rows)
            return
        pairs = [(int(counts[pair]), pair) for pair in zip(*counts.nonzero(), strict=True) if pair[0] != pair[1]]
        often = sorted(pairs, key=lambda each: (-each[0], each[1]))[:MOST_CONFUSIONS]
        rows = [(names[true], names[predicted], f"{count:,}") for count, (true, predicted) in often]
        columns = ["true class", "predicted class", "vertices"]
        yield ScoreTable(f"{split}: most often confused", columns, rows, num_names=2)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "classes": list(self.class_names),
            "splits": {part: self._of_split(scores) for part, scores in self.splits.items()},
        }

    def _of_split(self, scores: SplitScores) -> dict[str, Any]:
        by_class = {each.name: getattr(scores.classes, each.name).tolist() for each in fields(ClassScores)}
        return {
            "vertices": scores.num_vertices,
            "accuracy": scores.accuracy,
            "micro_f1": scores.micro_f1,
            "macro_f1": scores.macro_f1,
            **by_class,
            "confusion": None if scores.confusion is None else scores.confusion.tolist(),
        }


def _shares(*values: float) -> list[str]:
    return [f"{value:.4f}" for value in values]


class _SplitTally(ScoreTally):
    """Counts pairs of a true and a predicted class too."""

    def __init__(self, num_classes: int, *, with_pairs: bool) -> None:
        super().__init__(num_classes)
        counted = with_pairs and num_classes <= MOST_CONFUSED
        self._pairs = np.zeros((num_classes, num_classes), np.int64) if counted else None

    def add(self, predicted: NDArray[Any], labels: NDArray[Any]) -> None:
        super().add(predicted, labels)
        if self._pairs is not None:
            numbers = np.bincount(labels * len(self._pairs) + predicted, minlength=self._pairs.size)
            self._pairs += numbers.reshape(self._pairs.shape)

    def split_scores(self) -> SplitScores:
        return SplitScores(
            num_vertices=self.num_vertices, classes=self.class_scores(), confusion=self._pairs, **self.scores()
        )


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
