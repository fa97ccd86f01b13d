"""What the scheduler is told (events) and what it asks for (actions)."""

from typing import NamedTuple

from dorylus.pipeline.tasks import Task


class Permit(NamedTuple):
    """Event: epochs up to and including this one may be started."""

    epoch: int


class Finished(NamedTuple):
    """Event: one of this server's tasks is done and its results are in place."""

    task: Task


class Arrived(NamedTuple):
    """Event: a peer's SC or ∇SC task is done and its rows are in this server's ghosts, be it that none was needed."""

    task: Task


class PeerFinished(NamedTuple):
    """Event: a peer has finished a step, or (``step`` None) the whole epoch, with all its intervals."""

    server: int
    epoch: int
    step: int | None = None


class Synchronise(NamedTuple):
    """Event: from this epoch on, none of which has been started yet, epochs are exact."""

    epoch: int


class Start(NamedTuple):
    """Action: everything this task waits for is in place; run it."""

    task: Task


class StepFinished(NamedTuple):
    """Action: all intervals of this server have finished this step, and some peer's task waits for it; tell them."""

    epoch: int
    step: int


class EpochFinished(NamedTuple):
    """Action: all intervals of this server have finished this epoch; tell the peers and the driver."""

    epoch: int


class Waiting(NamedTuple):
    """Action: this interval could start this epoch but for the staleness bound. Said once of each."""

    interval: int
    epoch: int


Report = Arrived | PeerFinished  # what peers say
Event = Permit | Finished | Report | Synchronise
Action = Start | StepFinished | EpochFinished | Waiting
