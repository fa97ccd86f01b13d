"""What an evaluation's score means for a run: the best so far, time to stop, or time to turn synchronous.

How far intervals may run ahead of the epoch that is being finished.
"""

from dataclasses import dataclass

from dorylus.config import RunConfig
from dorylus.runs import RunProgress


@dataclass(frozen=True)
class EarlyStopping:
    """Whether the score is the best so far, why the run ends with it, if it does, and whether it is near its target."""

    best: bool
    stop: str | None
    near_target: bool


def judge(progress: RunProgress, score: float, epoch: int, config: RunConfig) -> EarlyStopping:
    """Note a score, and judge it by the settings."""
    best = progress.note(score, epoch)
    target, margin = config.target_accuracy, config.sync_margin
    if target is not None and score >= target:
        return EarlyStopping(best, "target_accuracy", near_target=False)
    stop = "patience" if config.patience is not None and progress.stale >= config.patience else None
    near = target is not None and margin is not None and score >= target - margin
    return EarlyStopping(best, stop, near)


def last_startable_epoch(config: RunConfig, epoch: int, until: int, *, exact: bool) -> int:
    """The last epoch, from 0, that may begin before epoch ``epoch`` is over; the run goes up to ``until``.

    One further than the bound lets anyone go, so that whoever stands at the bound says so; and not past the next point
    at which nothing may be in flight: the end, a checkpoint, or an evaluation after which epochs may turn synchronous.
    ``exact``: they have turned synchronous already.
    """
    synchronous = exact or config.mode != "async"
    ahead = epoch if synchronous else epoch + config.staleness + 1
    # Servers elsewhere may be lost: then a run goes on from where nothing was in flight, checkpoint or not.
    saves = config.run_dir is not None or config.cluster != "local"
    stops = [config.checkpoint_every if saves else 0, config.eval_every if config.sync_margin else 0]
    drains = [(epoch // every + 1) * every for every in stops if every]
    return min([ahead, until - 1, *(stop - 1 for stop in drains)])
