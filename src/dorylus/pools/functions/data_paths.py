"""The data paths between the functions pool and functions: how a task's tensors reach a function and come back.

Direct: functions connect to the two data ports of their graph servers' process: one for rows and results, one for
weights, programs and weight gradients. Inline: tensors travel in the invocation's payload, which needs nothing but the
right to invoke. :class:`PathChoice` makes the path that is set, or the direct one where a function reports that it
reaches the ports.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Final, Protocol

import numpy as np

from dorylus.errors import ConfigError
from dorylus.functions import CONTENT, DirectTask, ExportedProgram, Invocation, Ports, ProgramError, is_summed, narrow
from dorylus.pools.functions.data_service import DataService, WeightVersions
from dorylus.pools.functions.invocations import FunctionsConfig, Invocations, UsageCounter, printable
from dorylus.pools.functions.tasks import (
    Inputs,
    OpenTask,
    TaskWork,
    even,
    out_row_bytes,
    output_shapes,
    row_bytes,
    rows_within,
    within,
)
from dorylus.pools.pool import Lost, PoolFault, Unavailable

InvocationJob = Callable[[], None]
WAIT_S = 30.0  # how long a function waits for a port's answer, at most
PER_ARRAY_BYTES: Final = 192
NO_LIMIT_BYTES: Final = 64 << 20  # the most bytes of a payload where the service sets no limit
PROBES = 3  # attempts at the probe that shows whether functions reach the ports


class DataPath(Protocol):
    """How tensors reach functions and come back. ``name`` is its value in settings."""

    name: str

    def prepare(self, task: OpenTask, program: ExportedProgram) -> TaskWork:
        """Cut the task's inputs into the parts that travel; called once for all attempts."""

    def jobs(self, task: OpenTask, work: TaskWork) -> list[InvocationJob]:
        """The jobs of one attempt, one invocation each: when all have returned, the task is complete."""

    def withdraw(self, task: OpenTask) -> None:
        """The task is over: its inputs may be overwritten from now on."""

    def close(self) -> None:
        """Stop listening."""


class OpenPorts(Protocol):
    """The two data ports, listening."""

    def dialled(self) -> Ports:
        """The addresses that functions connect to, and their keys from now on."""

    def close(self) -> None:
        """Stop listening."""


class DirectPath:
    """A task is one invocation, which carries no tensor: the function fetches rows in parts and pushes the outputs."""

    name = "direct"

    def __init__(
        self,
        invocations: Invocations,
        service: DataService,
        versions: WeightVersions,
        ports: OpenPorts,
        config: FunctionsConfig,
    ) -> None:
        self._invocations, self._service, self._versions = invocations, service, versions
        self._ports, self._config = ports, config
        self._in_use: dict[str, str] = {}  # the version of each open task's weights

    def prepare(self, task: OpenTask, program: ExportedProgram) -> TaskWork:
        """Offer the task's inputs for fetching."""
        inputs = Inputs(task.call, program)
        self._in_use[task.id] = self._versions.use(task.call.weights)
        self._service.open(task, program)
        parts = even(inputs.num_rows, self._part_rows(inputs, output_shapes(task.call, program.outputs, program.kept)))
        return TaskWork(task.call, program, inputs, parts, self._config.precision, sums_apart=False)

    def jobs(self, task: OpenTask, work: TaskWork) -> list[Callable[[], None]]:
        """One invocation, which fetches and returns all parts."""
        return [partial(self._run, task, work, self._in_use[task.id])]

    def withdraw(self, task: OpenTask) -> None:
        """The task's inputs may not be fetched any more."""
        self._service.withdraw(task)
        version = self._in_use.pop(task.id, None)
        if version is not None:
            self._versions.release(version)

    def close(self) -> None:
        """Close the ports."""
        self._ports.close()

    def _part_rows(self, inputs: Inputs, shapes: dict[str, tuple[int, ...]]) -> int:
        if self._config.part_rows is not None:
            return self._config.part_rows
        precision = self._config.precision
        return rows_within(row_bytes(inputs, precision) + out_row_bytes(shapes, precision), self._config.part_bytes)

    def _run(self, task: OpenTask, work: TaskWork, version: str) -> None:
        begin, end = work.parts[0]
        direct = DirectTask(
            self._ports.dialled(),
            work.inputs.num_rows,
            end - begin,
            version,
            self._config.stream,
            min(self._config.timeout_s, WAIT_S),
        )
        inputs = work.inputs
        invocation = Invocation(task.id, work.program.hash, inputs.columns, self._config.precision, direct)
        self._invocations.run(task.call, invocation.to_header(), inputs.whole)


class InlinePath:
    """Each part of the rows is an invocation of its own, with the weights; programs are sent only if missing."""

    name = "inline"

    def __init__(self, invocations: Invocations, usage: UsageCounter, precision: str) -> None:
        self._invocations, self._usage, self._precision = invocations, usage, precision
        self._limit_bytes = invocations.invoker.payload_limit_bytes or NO_LIMIT_BYTES

    def prepare(self, task: OpenTask, program: ExportedProgram) -> TaskWork:
        """The task's inputs, cut so that no payload is too big in either direction."""
        inputs = Inputs(task.call, program)
        shapes = output_shapes(task.call, program.outputs, program.kept)
        weights = sum(array.nbytes for array in inputs.weights.values())
        sums = sum(4 * prod(shape) for name, shape in shapes.items() if is_summed(name))
        # Each array has a name, a shape and some zeros before it.
        described = sum(len(name) + PER_ARRAY_BYTES for name in (*program.inputs, *program.outputs))
        whole = max(weights + len(program.content), sums) + described
        out_bytes = out_row_bytes(shapes, self._precision)
        parts = within(inputs, self._precision, self._limit_bytes, whole, out_bytes)
        return TaskWork(task.call, program, inputs, parts, self._precision, sums_apart=True)

    def jobs(self, task: OpenTask, work: TaskWork) -> list[Callable[[], None]]:
        """One for each part that no other attempt has brought yet."""
        return [partial(self._run_part, task, work, part) for part in work.outcome.missing()]

    def withdraw(self, task: OpenTask) -> None:
        """Nothing: payloads in progress may read overwritten rows, but their results are dropped."""

    def close(self) -> None:
        """No port is open."""

    def _run_part(self, task: OpenTask, work: TaskWork, part: int) -> None:
        if task.over or not work.outcome.lacks(part):
            return
        header = Invocation(task.id, work.program.hash, work.inputs.columns, self._precision).to_header()
        rows = narrow(work.inputs.part(*work.parts[part]), self._precision)
        arrays = {**work.inputs.whole, **work.inputs.weights, **rows}
        frame = self._invocations.run(task.call, header, arrays)
        if "missing" in frame.header:
            arrays[CONTENT] = np.frombuffer(work.program.content, np.uint8)
            frame = self._invocations.run(task.call, header, arrays)
        try:
            is_new = not task.over and work.outcome.take(part, frame.arrays)
        except ProgramError as error:
            raise Lost(f"a function answered with something other than its outputs: {error}") from error
        if not is_new:
            self._usage.add(task.kind, duplicates=1)


OpenPortsOf = Callable[[FunctionsConfig, DataService], OpenPorts]


class PathChoice:
    """Makes the data path of a run. ``completed`` is called with a task whose last part a function has pushed."""

    def __init__(
        self,
        config: FunctionsConfig,
        invocations: Invocations,
        usage: UsageCounter,
        completed: Callable[[OpenTask], None],
        open_ports: OpenPortsOf,
    ) -> None:
        self._config, self._invocations, self._usage = config, invocations, usage
        self._completed, self._open_ports = completed, open_ports

    def make(self, run: str) -> tuple[DataPath, str]:
        """The path, and the reason for it."""
        setting = self._config.data_path
        if setting == "inline":
            return self._inline(), "asked for"
        if setting == "direct":
            return self._direct(run)[0], "asked for"
        try:
            direct, ports = self._direct(run)
        except ConfigError as error:
            return self._inline(), str(error)
        reached, why = self._probe(ports)
        if reached:
            return direct, why
        direct.close()
        return self._inline(), why

    def _inline(self) -> InlinePath:
        return InlinePath(self._invocations, self._usage, self._config.precision)

    def _direct(self, run: str) -> tuple[DirectPath, OpenPorts]:
        versions = WeightVersions(run)
        service = DataService(versions, self._usage, self._config.precision, self._completed)
        ports = self._open_ports(self._config, service)
        return DirectPath(self._invocations, service, versions, ports, self._config), ports

    def _probe(self, ports: OpenPorts) -> tuple[bool, str]:
        """Whether a function can reach the ports, and how that was found."""
        header = {"probe": True, **ports.dialled().to_header()}
        why, unasked = "", "no function answered whether it reaches our data ports"
        for _ in range(PROBES):
            try:
                answer = self._invocations.ask("probe", header, {}).header
            except Unavailable as fault:
                return False, f"{unasked}: {fault}"
            except PoolFault as fault:
                why = f"{unasked}: {fault}"
                continue
            if answer.get("reached") is True:
                return True, "a function reached our data ports"
            why = printable(answer.get("why", answer.get("error", "")))
            return False, f"no function can reach our data ports: {why}"
        return False, why
