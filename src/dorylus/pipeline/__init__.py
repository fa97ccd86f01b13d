"""When each task may run: task tables, schedules, the staleness bound and the scheduler.

``Scheduler.handle(event) -> list[Action]`` is the whole interface; each server has its own scheduler. The package has
no clock, thread, socket or tensor, so the engine, the tests and any simulator run the same scheduler. What a task does
is defined in :mod:`dorylus.servers`.
"""

from dorylus.pipeline.events import (
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
