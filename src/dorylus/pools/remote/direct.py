"""The direct path: functions dial the data ports of the graph server (rows) and the parameter server (weights)."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from dorylus.functions.invocation import Errand, Invocation, Ports
from dorylus.functions.program import Program
from dorylus.pools.remote.arrays import Inputs
from dorylus.pools.remote.cutting import even, out_row_bytes, row_bytes, rows_within
from dorylus.pools.remote.data_service import DataService
from dorylus.pools.remote.functions_config import FunctionsConfig
from dorylus.pools.remote.invocations import Invocations
from dorylus.pools.remote.open_task import OpenTask, Work
from dorylus.pools.remote.outcome import output_shapes
from dorylus.pools.remote.weight_versions import WeightVersions

WAIT_S = 30.0  # how long a function waits for a port's answer, at most


class OpenPorts(Protocol):
    """The two data ports, listening."""

    def dialled(self) -> Ports:
        """Where functions dial them, and with which keys from now on."""

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
        self._in_use: dict[str, str] = {}  # the version of the weights of each open task

    def prepare(self, task: OpenTask, program: Program) -> Work:
        """The task's inputs, ready to be fetched."""
        inputs = Inputs(task.call, program)
        self._in_use[task.id] = self._versions.use(task.call.weights)
        self._service.open(task, program)
        parts = even(inputs.num_rows, self._part_rows(inputs, output_shapes(task.call, program.outputs, program.kept)))
        return Work(task.call, program, inputs, parts, self._config.precision, sums_apart=False)

    def jobs(self, task: OpenTask, work: Work) -> list[Callable[[], None]]:
        """One invocation, which sees to all parts."""
        return [partial(self._run, task, work, self._in_use[task.id])]

    def withdraw(self, task: OpenTask) -> None:
        """Nobody may fetch the task's inputs any more."""
        self._service.withdraw(task)
        version = self._in_use.pop(task.id, None)
        if version is not None:
            self._versions.let_go(version)

    def close(self) -> None:
        """Close the ports."""
        self._ports.close()

    def _part_rows(self, inputs: Inputs, shapes: dict[str, tuple[int, ...]]) -> int:
        if self._config.part_rows is not None:
            return self._config.part_rows
        precision = self._config.precision
        return rows_within(row_bytes(inputs, precision) + out_row_bytes(shapes, precision), self._config.part_bytes)

    def _run(self, task: OpenTask, work: Work, version: str) -> None:
        begin, end = work.parts[0]
        errand = Errand(
            self._ports.dialled(),
            work.inputs.num_rows,
            end - begin,
            version,
            self._config.stream,
            min(self._config.timeout_s, WAIT_S),
        )
        inputs = work.inputs
        asked = Invocation(task.id, work.program.hash, inputs.columns, self._config.precision, errand)
        self._invocations.run(task.call, asked.to_header(), inputs.whole)
