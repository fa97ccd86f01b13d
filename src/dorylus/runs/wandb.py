"""Weights & Biases: a run in the project that WANDB_PROJECT names, or ``dorylus``; offline with WANDB_MODE=offline."""

import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from dorylus.runs.loggers import EpochFigures, LoggedRun


def open_wandb(run: LoggedRun) -> "WandbLogger":
    """Goes on with the run that was logged before, or begins one."""
    return WandbLogger(run)


class WandbLogger:
    """Logs settings as the config, figures as the history, and the result as the summary."""

    def __init__(self, run: LoggedRun) -> None:
        import wandb

        self.run_id: str = run.run_id or secrets.token_hex(8)
        # The terminal is the run's own, and other runs of this process go on.
        options = wandb.Settings(console="off", quiet=True, reinit="create_new")
        self._run = wandb.init(
            id=self.run_id,
            name=run.name,
            project=os.environ.get("WANDB_PROJECT", "dorylus"),
            config=dict(run.settings),
            resume=None if run.run_id is None else "allow",
            allow_val_change=True,
            settings=options,
        )
        # Offline, a resumed run does not know what it has; the run log does.
        self.last_step = self._run.step - 1 if self._run.resumed else run.logged_until

    def log(self, steps: Sequence[EpochFigures]) -> None:
        """Logs each step with its figures."""
        for step, figures in steps:
            self._run.log(figures, step=step)

    def summarise(self, figures: Mapping[str, Any]) -> None:
        """Sets the figures of the result."""
        self._run.summary.update({f"final_{name}": value for name, value in figures.items()})

    def close(self, *, finished: bool) -> None:
        """Ends the run, and waits until it is sent."""
        self._run.finish(exit_code=0 if finished else 1)
