"""The two data ports of a run: rows of open tasks and weights by version out, the outputs of functions in.

:class:`DataService` answers requests, :class:`WeightVersions` holds the weights (a version is one mapping, which never
changes), and :class:`DataPorts` listens with keys that expire. A task's inputs may be fetched only while it is open:
afterwards their memory is reused. Each part of its outputs is accepted once, from the first attempt.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from dorylus.functions import CONTENT, ArrayRole, ExportedProgram, Ports, ProgramError, narrow, role, which
from dorylus.pools.functions.invocations import FunctionsConfig, UsageCounter, printable
from dorylus.pools.functions.tasks import Arrays, OpenTask, TaskWork, array_of
from dorylus.wire import ClientKeys, Frame, Refused, RunKeys


@dataclass
class _HeldVersion:
    id: str
    weights: Mapping[str, Tensor]
    users: int = 0


class WeightVersions:
    """The versions in use by tasks, and the few used last, which the next task probably uses under the same id.

    Ids start with ``prefix``, so that no function confuses them with the weights of another run.
    """

    def __init__(self, prefix: str, max_unused: int = 4) -> None:
        self._prefix, self._max_unused = prefix, max_unused
        self._lock = threading.Lock()
        self._by_identity: OrderedDict[int, _HeldVersion] = OrderedDict()
        self._by_id: dict[str, _HeldVersion] = {}
        self._made = 0

    def use(self, weights: Mapping[str, Tensor]) -> str:
        """The id of this version, which is held until each of its users has released it."""
        with self._lock:
            held = self._by_identity.get(id(weights))
            if held is None:
                held = _HeldVersion(f"{self._prefix}-{self._made}", weights)
                self._made += 1
                self._by_identity[id(weights)] = self._by_id[held.id] = held
            held.users += 1
            self._by_identity.move_to_end(id(weights))
            return held.id

    def release(self, version: str) -> None:
        """Release a version; of those without users, the oldest are dropped."""
        with self._lock:
            self._by_id[version].users -= 1
            unused = [held for held in self._by_identity.values() if not held.users]
            for held in unused[: max(0, len(unused) - self._max_unused)]:
                del self._by_identity[id(held.weights)], self._by_id[held.id]

    def get(self, version: str, names: list[str]) -> Arrays:
        """Some weights of a version, by their names in programs."""
        with self._lock:
            held = self._by_id.get(version)
        if held is None:
            raise Refused(f"no task uses version {version[:100]} of the weights any more.")
        if unknown := [name for name in names if role(name) is not ArrayRole.WEIGHT or which(name) not in held.weights]:
            raise Refused(f"version {version} of the weights has no {', '.join(unknown)[:1000]}.")
        return {name: array_of(held.weights[which(name)]) for name in names}

    def __len__(self) -> int:
        return len(self._by_id)


class DataService:
    """The open tasks of a pool, behind its two ports; ``completed`` is called with a task whose last part has come."""

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
        self._programs: dict[str, ExportedProgram] = {}

    def open(self, task: OpenTask, program: ExportedProgram) -> None:
        """Let functions fetch a task's inputs and push its outputs."""
        with self._lock:
            self._tasks[task.id] = task
            self._programs[program.hash] = program

    def withdraw(self, task: OpenTask) -> None:
        """Close a task: later requests of functions for it are refused."""
        with self._lock:
            self._tasks.pop(task.id, None)

    def answer_rows(self, request: Frame) -> Frame:
        """Answer a request at the port for rows: it returns parts of rows and accepts outputs."""
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
        raise Refused(f"the port of rows has no {printable(repr(ask))}.")

    def answer_weights(self, request: Frame) -> Frame:
        """Answer a request at the port for weights: returns weights and programs, accepts gradients and the loss."""
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
            raise Refused(f"the port of weights has no {printable(repr(ask))}.")
        self._usage.add(task.kind, bytes_in=_bytes(arrays))
        return Frame({}, arrays)

    def _open(self, request: Frame) -> tuple[OpenTask, TaskWork]:
        name = request.header.get("task")
        with self._lock:
            task = self._tasks.get(name) if isinstance(name, str) else None
        if task is None or task.work is None:
            if request.header.get("ask") == "take":
                self._usage.add("late", duplicates=1, bytes_out=_bytes(request.arrays))
            raise Refused("the task is over, or was never here: another attempt has completed it.")
        return task, task.work

    def _take(self, task: OpenTask, work: TaskWork, request: Frame, take: Callable[[], bool]) -> Frame:
        self._usage.add(task.kind, bytes_out=_bytes(request.arrays))
        try:
            is_new = take()
        except ProgramError as error:
            raise Refused(f"not the outputs of the task: {error}") from error
        if not is_new:
            self._usage.add(task.kind, duplicates=1)
        elif work.outcome.complete:
            self._completed(task)
        return Frame({"taken": is_new}, {})

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
        raise Refused("a request for weights lists their names.")
    return names


def _bytes(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())


class Keyring:
    """One client's keys for all functions of a run, renewed at half of their lifetime."""

    def __init__(self, keys: RunKeys, lifetime_s: float, clock: Callable[[], float] = time.time) -> None:
        self._keys, self._lifetime_s, self._clock = keys, lifetime_s, clock
        self._lock = threading.Lock()
        self._current: ClientKeys | None = None

    def header(self) -> dict[str, Any]:
        """Keys that are valid for at least half of a lifetime, for the header of an invocation."""
        with self._lock:
            if self._current is None or self._current.expires_at - self._clock() < self._lifetime_s / 2:
                self._current = self._keys.client(self._lifetime_s)
            return self._current.to_header()


class DataPorts:
    """Both ports, listening with the same keys; functions get keys that expire."""

    def __init__(self, config: FunctionsConfig, service: DataService) -> None:
        from dorylus.wire import DataPort, RunKeys

        keys = RunKeys.fresh()
        self._keyring = Keyring(keys, config.key_lifetime_s)
        rows, weights = config.ports
        advertise = config.advertise
        self._rows = DataPort(keys, service.answer_rows, host=config.host, port=rows, advertise=advertise)
        try:
            self._weights = DataPort(keys, service.answer_weights, host=config.host, port=weights, advertise=advertise)
        except BaseException:
            self._rows.close()
            raise

    def dialled(self) -> Ports:
        """The addresses that functions connect to, and their keys from now on."""
        return Ports(self._rows.address, self._weights.address, self._keyring.header())

    def close(self) -> None:
        """Stop listening."""
        self._rows.close()
        self._weights.close()


def open_ports(config: FunctionsConfig, service: DataService) -> DataPorts:
    """The two ports of a run, listening."""
    return DataPorts(config, service)
