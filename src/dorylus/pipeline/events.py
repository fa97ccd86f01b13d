"""The events that a scheduler receives and the actions that it returns."""

from typing import NamedTuple

from dorylus.pipeline.tasks import Task


class Permit(NamedTuple):
    """Event: epochs up to and including this one may be started."""

    epoch: int


class Finished(NamedTuple):
    """Event: one of this server's tasks is done and its results are in place."""

    task: Task


class Arrived(NamedTuple):
    """Event: a peer's SC or ∇SC task is done and the rows that this server needs of it, if any, are in its ghosts."""

    task: Task


class PeerFinished(NamedTuple):
    """Event: a peer has finished a step, or (``step`` None) the whole epoch, with all its intervals."""

    server: int
    epoch: int
    step: int | None = None


class Synchronise(NamedTuple):
    """Event: epochs are exact from this one on. It must not have been started yet."""

    epoch: int


class Start(NamedTuple):
    """Action: everything this task waits for is in place; run it."""

    task: Task


class StepFinished(NamedTuple):
    """Action: all intervals of this server have finished a step that peers' tasks wait for; report it to the peers."""

    epoch: int
    step: int


class EpochFinished(NamedTuple):
    """Action: all intervals of this server have finished this epoch; report it to the peers and the driver."""

    epoch: int


class Waiting(NamedTuple):
    """Action: only the staleness bound keeps this interval from starting this epoch. Returned once for each."""

    interval: int
    epoch: int


Report = Arrived | PeerFinished  # the events that come from peers
Event = Permit | Finished | Report | Synchronise
Action = Start | StepFinished | EpochFinished | Waiting
