"""The seam between the functions pool and how tensors travel: a task becomes work, an attempt at it becomes jobs."""

from collections.abc import Callable
from typing import Protocol

from dorylus.functions.program import Program
from dorylus.pools.remote.open_task import OpenTask, Work

Job = Callable[[], None]


class DataPath(Protocol):
    """How tensors reach functions and come back. ``name`` is what users call it."""

    name: str

    def prepare(self, task: OpenTask, program: Program) -> Work:
        """The task's inputs, cut as they will travel; called once for all its attempts."""

    def jobs(self, task: OpenTask, work: Work) -> list[Job]:
        """What one attempt has to do, each an invocation: when all have returned, the task is complete."""

    def withdraw(self, task: OpenTask) -> None:
        """The task is over: its inputs may be overwritten from now on."""

    def close(self) -> None:
        """Stop whatever listens."""
