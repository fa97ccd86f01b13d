"""The inline path: tensors travel in the invocation's payload. It needs nothing but the right to invoke."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Final

import numpy as np

from dorylus.functions.invocation import CONTENT, Invocation
from dorylus.functions.payload import narrow
from dorylus.functions.program import Program, ProgramError, is_summed
from dorylus.pools.faults import Lost
from dorylus.pools.remote.arrays import Inputs
from dorylus.pools.remote.cutting import out_row_bytes, within
from dorylus.pools.remote.invocations import Invocations
from dorylus.pools.remote.open_task import OpenTask, Work
from dorylus.pools.remote.outcome import output_shapes
from dorylus.pools.remote.usage import UsageCounter

PER_ARRAY_BYTES: Final = 192
NO_LIMIT_BYTES: Final = 64 << 20  # what a payload has at most where the service sets no limit


class InlinePath:
    """Each part of the rows is an invocation of its own, and brings the weights along; programs only when missing."""

    name = "inline"

    def __init__(self, invocations: Invocations, usage: UsageCounter, precision: str) -> None:
        self._invocations, self._usage, self._precision = invocations, usage, precision
        self._limit_bytes = invocations.invoker.payload_limit_bytes or NO_LIMIT_BYTES

    def prepare(self, task: OpenTask, program: Program) -> Work:
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
        return Work(task.call, program, inputs, parts, self._precision, sums_apart=True)

    def jobs(self, task: OpenTask, work: Work) -> list[Callable[[], None]]:
        """One for each part that no other attempt has brought yet."""
        return [partial(self._run_part, task, work, part) for part in work.outcome.missing()]

    def withdraw(self, task: OpenTask) -> None:
        """Payloads still being made may read what is written meanwhile: nobody takes what comes of them."""

    def close(self) -> None:
        """Nothing listens."""

    def _run_part(self, task: OpenTask, work: Work, part: int) -> None:
        if task.over or not work.outcome.wants(part):
            return
        header = Invocation(task.id, work.program.hash, work.inputs.columns, self._precision).to_header()
        rows = narrow(work.inputs.part(*work.parts[part]), self._precision)
        arrays = {**work.inputs.whole, **work.inputs.weights, **rows}
        frame = self._invocations.run(task.call, header, arrays)
        if "missing" in frame.header:
            arrays[CONTENT] = np.frombuffer(work.program.content, np.uint8)
            frame = self._invocations.run(task.call, header, arrays)
        try:
            taken = not task.over and work.outcome.take(part, frame.arrays)
        except ProgramError as error:
            raise Lost(f"a function answered with something else than its outputs: {error}") from error
        if not taken:
            self._usage.add(task.kind, duplicates=1)
