"""The progress of a run, which its checkpoints hold beside the weights, and how a stopped run is restored from them."""

import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

from torch import Tensor

from dorylus.errors import CheckpointError, given
from dorylus.graph import Graph, arrays_of, checksum, stored_checksums
from dorylus.runs.checkpoint import CheckpointStore, Fingerprint, fingerprint
from dorylus.runs.run_folder import RunFolder
from dorylus.runtime import EpochReport
from dorylus.saga import Program
from dorylus.servers import PSState


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


def graph_identity(graph: Graph) -> str:
    """A line that is equal for two graphs when all that a run reads of them is: sizes, and a checksum of the arrays."""
    known = {} if graph.store is None else stored_checksums(graph.store)
    total = 0
    for name, array in sorted(arrays_of(graph).items()):
        crc = known[name] if name in known else checksum(array)
        total = zlib.crc32(f"{name} {crc}".encode(), total)
    return f"{graph.num_vertices} vertices, {graph.num_edges} edges, {graph.num_features} features, {total:08x}"


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
        return Restored(RunProgress(graph=graph))
    try:
        progress = RunProgress.from_dict(saved.progress)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint of epoch {saved.epoch} in {folder.checkpoints} is damaged: {error}. Remove its folder to "
            f"continue from the one before, or train again into another {given('run_dir')}."
        ) from error
    if progress.graph != graph:
        raise CheckpointError(
            f"the run was started on another graph ({progress.graph}; this one: {graph}). Resume it with the graph "
            f"it was started on, or train this one into another {given('run_dir')}."
        )
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
