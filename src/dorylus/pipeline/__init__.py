"""When each task may run, and nothing else: no clock, no thread, no socket, no tensor.

``Scheduler.handle(event) -> list[Action]`` is the whole face. The live engine, the tests and any simulator run
the same scheduler; what a task does is the business of :mod:`dorylus.servers`.
"""

from dorylus.pipeline.messages import Action, EpochFinished, Event, Finished, Permit, Start
from dorylus.pipeline.scheduler import Scheduler
from dorylus.pipeline.schedules import SCHEDULES, no_pipe, pipe
from dorylus.pipeline.tasks import Kind, Need, Reads, Scope, Step, Task, TaskTable

__all__ = [
    "SCHEDULES",
    "Action",
    "EpochFinished",
    "Event",
    "Finished",
    "Kind",
    "Need",
    "Permit",
    "Reads",
    "Scheduler",
    "Scope",
    "Start",
    "Step",
    "Task",
    "TaskTable",
    "no_pipe",
    "pipe",
]
