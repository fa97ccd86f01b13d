"""How far a run has come: what a checkpoint must know beside weights and optimiser.

Where a run that goes on begins: at its last checkpoint, or at the beginning if it has none.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from torch import Tensor

from dorylus.errors import CheckpointError
from dorylus.runs.checkpoint_store import CheckpointStore
from dorylus.runs.identity import fingerprint
from dorylus.runs.run_folder import RunFolder
from dorylus.runtime import EpochReport
from dorylus.saga import Program
from dorylus.servers import PSState


@dataclass
class RunProgress:
    """Losses and times so far, the best score on validation, and why the run stopped, if it did."""

    losses: list[float] = field(default_factory=list)
    epoch_seconds: list[float] = field(default_factory=list)
    best_score: float | None = None
    best_epoch: int | None = None
    stale: int = 0  # evaluations since the best one
    stopped: str | None = None
    exact: bool = False  # an asynchronous run that has gone over to synchronous epochs
    traffic: dict[str, int] = field(default_factory=dict)  # bytes sent, by kind
    ages: dict[str, int] = field(default_factory=dict)  # values read across intervals, by age in epochs
    busy_seconds: dict[str, float] = field(default_factory=dict)  # by resource
    busy_wall_s: float = 0.0  # the time they were watched
    waits: int = 0  # how often an interval stood at the staleness bound
    used: dict[str, Any] = field(default_factory=dict)  # what the bill is made of
    unevaluated: bool = False  # stopped before the evaluation that was due
    graph: str = ""  # which graph it is, so that a run is not resumed on another

    def note(self, score: float, epoch: int) -> bool:
        """Take an evaluation's score; True when it is the best so far."""
        if self.best_score is not None and score <= self.best_score:
            self.stale += 1
            return False
        self.best_score, self.best_epoch, self.stale = score, epoch, 0
        return True

    def add(self, report: EpochReport) -> None:
        """Take what an epoch did."""
        self.losses.append(report.loss)
        self.epoch_seconds.append(report.seconds)
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
        """From plain data; TypeError or ValueError where that is of other kinds."""
        made = cls(**data)
        for each in fields(cls):
            value = getattr(made, each.name)
            if not isinstance(value, _KINDS[each.name]):
                raise TypeError(f"{each.name} of its progress is a {type(value).__name__}")
        amounts: list[Any] = [made.best_score, made.best_epoch, made.stale, made.busy_wall_s, made.waits]
        for counted in (made.traffic, made.ages, made.busy_seconds):
            amounts += counted.values()
        for each in (*amounts, *made.losses, *made.epoch_seconds):
            if not isinstance(each, _NUMBER | None) or (each is not None and abs(each) > _MOST):
                raise ValueError("its progress has something else than numbers, or numbers that cannot be")
        return made


_NUMBER = int | float
_MOST = 10**100
_KINDS: dict[str, Any] = {
    "losses": list, "epoch_seconds": list, "best_score": _NUMBER | None, "best_epoch": int | None, "stale": int,
    "stopped": str | None, "exact": bool, "traffic": dict, "ages": dict, "busy_seconds": dict, "busy_wall_s": _NUMBER,
    "waits": int, "used": dict, "unevaluated": bool, "graph": str,
}  # fmt: skip


def _add(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


@dataclass(frozen=True)
class Restored:
    """The epoch of the checkpoint and what it holds: progress, state of the parameter servers, best weights."""

    progress: RunProgress
    epoch: int | None = None
    state: PSState | None = None
    best: dict[str, Tensor] | None = None


def restore(folder: RunFolder, program: Program, graph: str, *, best: bool) -> Restored:
    """What the last checkpoint says, its weights put into the program; refused if it is of another model or graph.

    ``best``: whether the best weights are wanted too.
    """
    keeper = CheckpointStore(folder)
    found = keeper.latest(fingerprint(program.state_dict(), program.describe()))
    if found is None:
        return Restored(RunProgress(graph=graph))
    try:
        progress = RunProgress.from_dict(found.progress)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint of epoch {found.epoch} in {folder.checkpoints} is damaged: {error}. Remove its folder to "
            "go on from the one before, or train again into another run_dir."
        ) from error
    if progress.graph != graph:
        raise CheckpointError(
            f"the run was started on another graph ({progress.graph}; this one: {graph}). Give it the graph "
            "it was started on, or train this one into another run_dir."
        )
    if progress.stopped in ("interrupted", "budget"):
        progress.stopped = None
    program.load_state_dict(found.weights)

    def trained(state: dict[str, Tensor]) -> dict[str, Tensor]:  # the rest are buffers
        return {name: state[name] for name, _ in program.named_parameters()}

    best_epoch = progress.best_epoch if best else None
    return Restored(
        progress,
        found.epoch,
        PSState(trained(found.weights), found.optimizer, found.lr_schedule),
        None if best_epoch is None else trained(keeper.best_weights(best_epoch)),
    )
