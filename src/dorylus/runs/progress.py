"""What a run keeps beside its weights to use them again: its progress, and facts of the graph it was trained on.

A stopped run is restored on the same graph (:func:`restore`). A model may also be used on another one
(:class:`TrainedOn`): it reads features by their column and answers with class numbers, so names decide where both
graphs have them, and what does not fit is refused.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import reduce
from operator import or_
from os import PathLike
from types import UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dorylus import process_memory
from dorylus.errors import CheckpointError, DataError, GraphError, given
from dorylus.graph import Graph, SparseFeatures, arrays_of, checksum, stored_checksums
from dorylus.runs.checkpoint import CheckpointStore, Fingerprint, fingerprint
from dorylus.runs.run_folder import RunFolder
from dorylus.runtime import EpochReport
from dorylus.saga import Program
from dorylus.servers import PSState
from dorylus.units import format_bytes, parse_bytes


@dataclass
class RunProgress:
    """Losses and times so far, the best validation score, and the reason if the run has stopped."""

    losses: list[float] = field(default_factory=list)
    epoch_seconds: list[float] = field(default_factory=list)
    best_score: float | None = None
    best_epoch: int | None = None
    stale: int = 0  # evaluations since the best one
    stopped: str | None = None
    exact_from: int | None = None  # the epoch, from 0, from which on an asynchronous run near its target is exact
    traffic: dict[str, int] = field(default_factory=dict)  # bytes sent, by kind
    ages: dict[str, int] = field(default_factory=dict)  # values read across intervals, by age in epochs
    busy_seconds: dict[str, float] = field(default_factory=dict)  # by resource
    busy_wall_s: float = 0.0  # the time over which they were measured
    waits: int = 0  # how often an interval waited at the staleness bound
    used: dict[str, Any] = field(default_factory=dict)  # the usage that the bill is computed from
    epoch_usd: list[float] = field(default_factory=list)  # what the run had cost by the end of each epoch
    evaluations: list[dict[str, float]] = field(default_factory=list)  # the epoch and the scores of each
    unevaluated: bool = False  # the run stopped before an evaluation that was due
    graph: str = ""  # the identity of the graph: a run is not resumed on another

    def note(self, score: float, epoch: int) -> bool:
        """Add the score of an evaluation; True when it is the best so far."""
        if self.best_score is not None and score <= self.best_score:
            self.stale += 1
            return False
        self.best_score, self.best_epoch, self.stale = score, epoch, 0
        return True

    def note_scores(self, scores: Mapping[str, float], epoch: int) -> None:
        """Add the finite scores of an evaluation."""
        finite = {name: float(score) for name, score in scores.items() if math.isfinite(score)}
        self.evaluations.append({"epoch": epoch, **finite})

    def history(self) -> dict[str, list[Any]]:
        """Epoch, loss, seconds, dollars spent so far, and the scores of evaluations: a column each, a row an epoch.

        None where an epoch was not evaluated, or an older checkpoint has no dollars.
        """
        epochs = len(self.losses)
        columns: dict[str, list[Any]] = {
            "epoch": list(range(1, epochs + 1)),
            "loss": list(self.losses),
            "seconds": list(self.epoch_seconds),
            "usd": [None] * (epochs - len(self.epoch_usd)) + list(self.epoch_usd),
        }
        for evaluation in self.evaluations:
            for name in evaluation.keys() - {"epoch"}:
                columns.setdefault(name, [None] * epochs)[int(evaluation["epoch"]) - 1] = evaluation[name]
        return {name: columns[name] for name in (*_FIRST_COLUMNS, *sorted(columns.keys() - set(_FIRST_COLUMNS)))}

    def add(self, report: EpochReport, usd: float | None = None) -> None:
        """Add an epoch, and what the run had cost by its end."""
        self.losses.append(report.loss)
        self.epoch_seconds.append(report.seconds)
        if usd is not None:
            self.epoch_usd.append(usd)
        self.busy_wall_s += report.seconds
        _add(self.traffic, report.traffic)
        _add(self.ages, {str(age): count for age, count in report.ages.items()})
        _add(self.busy_seconds, report.busy_seconds)
        self.waits += report.waits

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """From plain data; TypeError or ValueError where the data has other types."""
        progress = cls(**data)
        for each in fields(cls):
            value = getattr(progress, each.name)
            if not isinstance(value, _TYPES[each.name]):
                raise TypeError(f"{each.name} of its progress is a {type(value).__name__}")
        if not all(isinstance(evaluation, dict) for evaluation in progress.evaluations):
            raise TypeError("evaluations of its progress are no tables")
        amounts: list[Any] = [
            progress.best_score, progress.best_epoch, progress.stale, progress.busy_wall_s, progress.waits
        ]  # fmt: skip
        for counted in (progress.traffic, progress.ages, progress.busy_seconds):
            amounts += counted.values()
        for evaluation in progress.evaluations:
            amounts += evaluation.values()
            if not isinstance(epoch := evaluation.get("epoch"), int) or not 1 <= epoch <= len(progress.losses):
                raise ValueError("its progress has scores of an epoch that it has not")
        if len(progress.epoch_usd) > len(progress.losses):
            raise ValueError("its progress has the cost of more epochs than there were")
        for each in (*amounts, *progress.losses, *progress.epoch_seconds, *progress.epoch_usd):
            if not isinstance(each, _NUMBER | None) or (each is not None and abs(each) > _MOST):
                raise ValueError("its progress has values that are no numbers, or numbers that are impossible")
        return progress


_FIRST_COLUMNS = ("epoch", "loss", "seconds", "usd")
_NUMBER = int | float
_MOST = 10**100


def _type_of(hint: Any) -> Any:
    """What isinstance takes for a field's type: whole numbers are numbers, too."""
    if isinstance(hint, UnionType):
        return reduce(or_, map(_type_of, get_args(hint)))
    return _NUMBER if hint is float else get_origin(hint) or hint


_TYPES = {name: _type_of(hint) for name, hint in get_type_hints(RunProgress).items()}


def _add(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


_FACT_TYPES: Mapping[str, Any] = {
    "name": str, "identity": str, "num_features": int, "num_classes": int, "multilabel": bool, "row_normalised": bool,
    "class_names": list | None, "feature_names": list | None,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TrainedOn:
    """The facts of a graph that a model trained on it depends on; ``identity`` is that of :func:`graph_identity`."""

    name: str
    identity: str
    num_features: int
    num_classes: int
    multilabel: bool
    row_normalised: bool
    class_names: tuple[str, ...] | None
    feature_names: tuple[str, ...] | None

    @classmethod
    def of(cls, graph: Graph, identity: str = "") -> Self:
        """The facts of a graph."""
        return cls(
            name=graph.name,
            identity=identity,
            num_features=graph.num_features,
            num_classes=graph.num_classes,
            multilabel=graph.multilabel,
            row_normalised=graph.is_row_normalised,
            class_names=graph.class_names,
            feature_names=graph.feature_names,
        )

    @classmethod
    def read(cls, folder: RunFolder) -> Self | None:
        """The facts of a run's graph; None for a run of an earlier version, which did not keep them."""
        content = folder.read_graph_facts()
        if content is None:
            return None
        try:
            for each in fields(cls):
                if not isinstance(content[each.name], _FACT_TYPES[each.name]):
                    raise TypeError(f"{each.name} is a {type(content[each.name]).__name__}")
            names = {key: _texts(content[key]) for key in ("class_names", "feature_names")}
            return cls(**{**{each.name: content[each.name] for each in fields(cls)}, **names})
        except (KeyError, TypeError) as error:
            raise DataError(
                f"{folder.graph_facts} is damaged ({error}): restore it from a copy of the run folder."
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def check_unchanged(self, graph: Graph, run_dir: str | PathLike[str]) -> None:
        """Refuse a graph that is not the one that the run was trained on."""
        found = graph_identity(graph)
        if found != self.identity:
            raise DataError(
                f"the graph of the run {run_dir} has changed since it was trained on ({self.identity}; now: {found}). "
                f"Put the old one back, or give {given('graph', ...)} to use the model on the graph as it is now."
            )

    def fitted(self, graph: Graph, memory: str | None = None) -> Graph:
        """The graph with its feature columns in the order of the model's, and row-normalised where those were.

        Features are copied for that: refused where they do not fit into ``memory``, or into what is free.
        """
        reorder = self._must_reorder(graph)
        normalise = self.row_normalised and not graph.is_row_normalised
        if not reorder and not normalise:
            return graph
        _check_copy(
            graph, "brought into the order of the run's" if reorder else "row-normalised like the run's", memory
        )
        if reorder and self.feature_names is not None:
            graph = graph.with_features(self.feature_names)
        return graph.row_normalised() if normalise else graph

    def labels_of(self, graph: Graph) -> NDArray[Any]:
        """The labels of a graph by the model's class numbers."""
        labels = graph.labels
        if labels is None or (not graph.multilabel and not (labels >= 0).any()):
            raise GraphError(
                f"graph {graph.name!r} has no labels to compare predictions with: give labels, or use dorylus predict."
            )
        if graph.multilabel != self.multilabel:
            kinds = "one class per vertex", "any number of labels per vertex"
            raise GraphError(
                f"graph {graph.name!r} has {kinds[graph.multilabel]}, but the model was trained for "
                f"{kinds[self.multilabel]}: give a graph with labels of that kind."
            )
        if self.class_names is None or graph.class_names in (None, self.class_names):
            self._check_numbers(graph)
            return labels
        return self._renumbered(graph.class_names or (), labels, graph.name)

    def _must_reorder(self, graph: Graph) -> bool:
        expected, names = self.feature_names, graph.feature_names
        if expected is None or names is None or expected == names:
            if graph.num_features != self.num_features:
                raise GraphError(
                    f"graph {graph.name!r} has {graph.num_features:,} features, but the model was trained on "
                    f"{self.num_features:,} (of {self.name!r}): give a graph with the same features."
                )
            return False
        categorical = {name.partition("=")[0] for name in names if "=" in name}
        for its, others, verb in ((expected, names, "lacks"), (names, expected, "has")):
            missing = sorted(set(its).difference(others))
            if verb == "lacks":  # a category that no vertex of the other graph has
                missing = [name for name in missing if "=" not in name or name.partition("=")[0] not in categorical]
            if missing:
                raise GraphError(
                    f"graph {graph.name!r} {verb} {_listed('feature', missing)}, which the model was"
                    f"{' not' if verb == 'has' else ''} trained on: give a graph with the same features."
                )
        if len(set(names)) < len(names) or len(set(expected)) < len(expected):
            raise GraphError(
                f"graph {graph.name!r} has the features of the model in another order, and several of one name: give "
                "each a name of its own, or the same order."
            )
        return True

    def _check_numbers(self, graph: Graph) -> None:
        most = graph.num_classes if graph.multilabel or graph.labels is None else int(graph.labels.max()) + 1
        if most > self.num_classes or (self.multilabel and most != self.num_classes):
            raise GraphError(
                f"graph {graph.name!r} has {most:,} classes, but the model was trained on {self.num_classes:,} (of "
                f"{self.name!r}): give a graph whose classes are those."
            )

    def _renumbered(self, names: Sequence[str], labels: NDArray[Any], graph_name: str) -> NDArray[Any]:
        assert self.class_names is not None
        number = {name: position for position, name in enumerate(self.class_names)}
        numbers = np.array([number.get(name, -1) for name in names], np.int64)
        counts = labels.sum(axis=0) if self.multilabel else np.bincount(labels[labels >= 0], minlength=len(names))
        unknown = [name for name, count, found in zip(names, counts, numbers, strict=True) if count and found < 0]
        if unknown:
            raise GraphError(
                f"graph {graph_name!r} has {_listed('class', unknown)}, which the model was not trained on: leave "
                "those vertices without a label."
            )
        if self.multilabel:
            columns = np.zeros((len(labels), self.num_classes), labels.dtype)
            columns[:, numbers[numbers >= 0]] = labels[:, numbers >= 0]
            return columns
        renumbered: NDArray[Any] = np.append(numbers, -1)[labels]  # -1 stays -1
        return renumbered


def _texts(names: Any) -> tuple[str, ...] | None:
    if names is not None and not all(isinstance(name, str) for name in names):
        raise TypeError("a name is not a text")
    return None if names is None else tuple(names)


def _listed(noun: str, names: Sequence[str]) -> str:
    """The first names of several: ``the feature 'x'``, ``the features 'x', 'y', 'z' and 4 more``."""
    plural = noun if len(names) == 1 else f"{noun}{'es' if noun.endswith('s') else 's'}"
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"the {plural} {', '.join(map(repr, names[:3]))}{more}"


def _check_copy(graph: Graph, what: str, memory: str | None) -> None:
    """Refuse features whose copy in memory has no room."""
    sparse = isinstance(graph.features, SparseFeatures)
    needed = 3 * graph.features.nbytes if sparse else 4 * graph.num_vertices * graph.num_features
    room = process_memory.free_bytes() if memory is None else parse_bytes(memory)
    if room is not None and needed > room:
        raise GraphError(
            f"the features of graph {graph.name!r} have to be {what}, which takes {format_bytes(needed)} of memory, "
            f"and {format_bytes(room)} are {'free' if memory is None else 'the limit'}: store the graph with "
            "features like that (Graph.save), and give that store."
        )


def graph_identity(graph: Graph) -> str:
    """A line that is equal for two graphs when all that a run reads of them is: sizes, and a checksum of the arrays."""
    known = {} if graph.store is None else stored_checksums(graph.store)
    total = 0
    for name, array in sorted(arrays_of(graph).items()):
        crc = known[name] if name in known else checksum(array)
        total = zlib.crc32(f"{name} {crc}".encode(), total)
    return f"{graph.num_vertices} vertices, {graph.num_edges} edges, {graph.num_features} features, {total:08x}"


def _check_graph(started_on: str, graph: str) -> None:
    if started_on != graph:
        raise CheckpointError(
            f"the run was started on another graph ({started_on}; this one: {graph}). Resume it with the graph "
            f"it was started on, or train this one into another {given('run_dir')}."
        )


@dataclass(frozen=True)
class Restored:
    """What a run starts from: its progress and, after a checkpoint, the epoch, the state and the best weights."""

    progress: RunProgress
    epoch: int | None = None
    state: PSState | None = None
    best: dict[str, Tensor] | None = None


def fingerprint_of(program: Program) -> Fingerprint:
    """The fingerprint of a program, which its checkpoints have."""
    return fingerprint(program.state_dict(), program.describe())


def restore(folder: RunFolder, program: Program, graph: str, *, best: bool) -> Restored:
    """The content of the last checkpoint, its weights loaded into the program; refused for another model or graph.

    ``best``: whether the best weights are read too.
    """
    store = CheckpointStore(folder)
    saved = store.latest(fingerprint_of(program))
    if saved is None:
        trained_on = TrainedOn.read(folder)
        _check_graph(graph if trained_on is None else trained_on.identity, graph)
        return Restored(RunProgress(graph=graph))
    try:
        progress = RunProgress.from_dict(saved.progress)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint of epoch {saved.epoch} in {folder.checkpoints} is damaged: {error}. Remove its folder to "
            f"continue from the one before, or train again into another {given('run_dir')}."
        ) from error
    _check_graph(progress.graph, graph)
    if progress.stopped in ("interrupted", "budget"):
        progress.stopped = None
    program.load_state_dict(saved.weights)

    def trained(state: dict[str, Tensor]) -> dict[str, Tensor]:  # the others are buffers
        return {name: state[name] for name, _ in program.named_parameters()}

    best_epoch = progress.best_epoch if best else None
    return Restored(
        progress,
        saved.epoch,
        PSState(trained(saved.weights), saved.optimizer, saved.lr_schedule),
        None if best_epoch is None else trained(store.best_weights(best_epoch)),
    )
