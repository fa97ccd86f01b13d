"""How far a run has come: what a checkpoint must know beside weights and optimiser."""

from dataclasses import asdict, dataclass, field
from typing import Any, Self


@dataclass
class Progress:
    """Losses and times so far, the best score on validation, and why the run stopped, if it did."""

    losses: list[float] = field(default_factory=list)
    epoch_seconds: list[float] = field(default_factory=list)
    best_score: float | None = None
    best_epoch: int | None = None
    stale: int = 0  # evaluations since the best one
    stopped: str | None = None
    graph: str = ""  # which graph it is, so that a run is not resumed on another

    def note(self, score: float, epoch: int) -> bool:
        """Take an evaluation's score; True when it is the best so far."""
        if self.best_score is not None and score <= self.best_score:
            self.stale += 1
            return False
        self.best_score, self.best_epoch, self.stale = score, epoch, 0
        return True

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """From plain data."""
        return cls(**data)
