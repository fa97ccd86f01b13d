"""How far a run has come: what a checkpoint must know beside weights and optimiser."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from dorylus.cluster import EpochReport


@dataclass
class Progress:
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
        """From plain data."""
        return cls(**data)


def _add(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
