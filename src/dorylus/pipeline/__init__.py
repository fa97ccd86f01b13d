"""When each task may run, and nothing else: no clock, no thread, no socket, no tensor.

``Scheduler.handle(event) -> list[Action]`` is the whole face; each server has a scheduler of its own. The live engine,
the tests and any simulator run the same one; what a task does is the business of :mod:`dorylus.servers`.
"""

from dorylus.pipeline.messages import (
    Action,
    Arrived,
    EpochFinished,
    Event,
    Finished,
    PeerFinished,
    Permit,
    Start,
    StepFinished,
    Synchronise,
    Waiting,
)
from dorylus.pipeline.scheduler import Scheduler
from dorylus.pipeline.schedules import MODES, Schedule, bounded, make_schedule, no_pipe, pipe
from dorylus.pipeline.tasks import DENSE, Kind, Need, Reads, Scope, Step, Task, TaskTable

__all__ = [
    "DENSE",
    "MODES",
    "Action",
    "Arrived",
    "EpochFinished",
    "Event",
    "Finished",
    "Kind",
    "Need",
    "PeerFinished",
    "Permit",
    "Reads",
    "Schedule",
    "Scheduler",
    "Scope",
    "Start",
    "Step",
    "StepFinished",
    "Synchronise",
    "Task",
    "TaskTable",
    "Waiting",
    "bounded",
    "make_schedule",
    "no_pipe",
    "pipe",
]
