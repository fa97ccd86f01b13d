"""What an evaluation's score means for a run: the best so far, time to stop, or time to turn synchronous."""

from dataclasses import dataclass

from dorylus.training.config import RunConfig
from dorylus.training.progress import Progress


@dataclass(frozen=True)
class Verdict:
    """Whether the score is the best so far, why the run ends with it, if it does, and whether it is near its target."""

    best: bool
    stop: str | None
    near_target: bool


def judge(progress: Progress, score: float, epoch: int, config: RunConfig) -> Verdict:
    """Note a score, and judge it by the settings."""
    best = progress.note(score, epoch)
    target, margin = config.target_accuracy, config.sync_margin
    if target is not None and score >= target:
        return Verdict(best, "target_accuracy", near_target=False)
    stop = "patience" if config.patience is not None and progress.stale >= config.patience else None
    near = target is not None and margin is not None and score >= target - margin
    return Verdict(best, stop, near)
