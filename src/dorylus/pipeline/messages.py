"""What the scheduler is told (events) and what it asks for (actions)."""

from typing import NamedTuple

from dorylus.pipeline.tasks import Task


class Permit(NamedTuple):
    """Event: epochs up to and including this one may be started."""

    epoch: int


class Finished(NamedTuple):
    """Event: a task is done and its results are in place."""

    task: Task


class Start(NamedTuple):
    """Action: everything this task waits for is in place; run it."""

    task: Task


class EpochFinished(NamedTuple):
    """Action: every task of this epoch is done."""

    epoch: int


Event = Permit | Finished
Action = Start | EpochFinished
