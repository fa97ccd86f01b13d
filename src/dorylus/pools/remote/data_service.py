"""What the data ports answer: rows of open tasks, weights by version, programs by hash; and what functions push.

A task's inputs may be fetched while it is open, and no longer: then their memory is others'. Each piece is taken once,
whoever brings it. Nothing here opens a socket.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from dorylus.functions.invocation import CONTENT
from dorylus.functions.payload import narrow
from dorylus.functions.program import Program, ProgramError
from dorylus.pools.remote.arrays import Arrays
from dorylus.pools.remote.invocations import told
from dorylus.pools.remote.open_task import OpenTask, Work
from dorylus.pools.remote.usage import UsageCounter
from dorylus.pools.remote.weight_versions import WeightVersions
from dorylus.wire.errors import Refused
from dorylus.wire.frames import Frame


class DataService:
    """The open tasks of a pool, as its two ports show them; ``completed`` is told of a task whose last piece came."""

    def __init__(
        self,
        versions: WeightVersions,
        usage: UsageCounter,
        precision: str,
        completed: Callable[[OpenTask], None],
    ) -> None:
        self._versions, self._usage, self._precision, self._completed = versions, usage, precision, completed
        self._lock = threading.Lock()
        self._tasks: dict[str, OpenTask] = {}
        self._programs: dict[str, Program] = {}

    def open(self, task: OpenTask, program: Program) -> None:
        """Let functions fetch a task's inputs and push its outputs."""
        with self._lock:
            self._tasks[task.id] = task
            self._programs[program.hash] = program

    def withdraw(self, task: OpenTask) -> None:
        """The task is over: whoever still fetches or pushes is refused."""
        with self._lock:
            self._tasks.pop(task.id, None)

    def answer_rows(self, request: Frame) -> Frame:
        """The graph server's port: parts of rows out, outputs in."""
        ask = request.header.get("ask")
        if ask == "hello":
            return Frame({"hello": "rows"}, {})
        task, work = self._open(request)
        part = _number(request.header, "part", len(work.parts))
        if ask == "rows":
            arrays = narrow(work.inputs.part(*work.parts[part]), self._precision)
            self._usage.add(task.kind, bytes_in=_bytes(arrays))
            return Frame({"part": part}, arrays)
        if ask == "take":
            return self._take(task, work, request, lambda: work.outcome.take_rows(part, request.arrays))
        raise Refused(f"the port of rows is not asked for {told(repr(ask))}.")

    def answer_weights(self, request: Frame) -> Frame:
        """The parameter server's port: weights and programs out, gradients and the loss in."""
        ask, header = request.header.get("ask"), request.header
        if ask == "hello":
            return Frame({"hello": "weights"}, {})
        task, work = self._open(request)
        if ask == "take":
            return self._take(task, work, request, lambda: work.outcome.take_sums(0, request.arrays))
        if ask == "program":
            arrays = self._program(str(header.get("program")))
        elif ask == "weights":
            arrays = self._versions.get(str(header.get("version")), _names(header))
        else:
            raise Refused(f"the port of weights is not asked for {told(repr(ask))}.")
        self._usage.add(task.kind, bytes_in=_bytes(arrays))
        return Frame({}, arrays)

    def _open(self, request: Frame) -> tuple[OpenTask, Work]:
        name = request.header.get("task")
        with self._lock:
            task = self._tasks.get(name) if isinstance(name, str) else None
        if task is None or task.work is None:
            if request.header.get("ask") == "take":
                self._usage.add("late", duplicates=1, bytes_out=_bytes(request.arrays))
            raise Refused("the task is over, or was never here: another attempt has completed it.")
        return task, task.work

    def _take(self, task: OpenTask, work: Work, request: Frame, take: Callable[[], bool]) -> Frame:
        self._usage.add(task.kind, bytes_out=_bytes(request.arrays))
        try:
            taken = take()
        except ProgramError as error:
            raise Refused(f"not what the task gives: {error}") from error
        if not taken:
            self._usage.add(task.kind, duplicates=1)
        elif work.outcome.complete:
            self._completed(task)
        return Frame({"taken": taken}, {})

    def _program(self, program_hash: str) -> Arrays:
        with self._lock:
            program = self._programs.get(program_hash)
        if program is None:
            raise Refused("no open task runs that program.")
        return {CONTENT: np.frombuffer(program.content, np.uint8)}


def _number(header: dict[str, Any], name: str, count: int) -> int:
    value = header.get(name)
    if type(value) is not int or not 0 <= value < count:
        raise Refused(f"a request's {name} is a whole number from 0 to {count - 1}.")
    return value


def _names(header: dict[str, Any]) -> list[str]:
    names = header.get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Refused("a request for weights gives their names.")
    return names


def _bytes(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())
