"""A call under way: what its attempts share, from when it is first submitted until somebody has completed it.

What has come back of a task so far. Each piece is taken exactly once, from whichever attempt brings it first.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
import torch

from dorylus.functions import ArrayRole, ExportedProgram, Form, ProgramError, called, forms, is_summed, widen
from dorylus.pools.functions.arrays import Array, Arrays, Inputs, Part
from dorylus.saga import Call, Mode, Reply, Rows, SparseRows

_NAMES_SHOWN = 32


class Outcome:
    """Puts a task's outputs together: rows one after the other, sums added up in the order of their parts.

    ``num_sums``: into how many parts the sums are cut; as many as the rows where each part is an invocation of its own,
    one where a function adds them up itself. Pieces are brought as they travel, rows in ``precision``; what is not
    exactly what the task gives is refused before memory is taken for it. Any thread may bring a piece.
    """

    def __init__(
        self,
        outputs: Mapping[str, tuple[int, ...]],
        parts: Sequence[Part],
        num_sums: int,
        precision: str = "float32",
    ) -> None:
        self._parts, self._shapes, self._precision = parts, outputs, precision
        self._rows: Arrays = {}
        self._sums: dict[int, Mapping[str, Array]] = {}
        self._row_names = {name for name in outputs if not is_summed(name)}
        self._sum_names = set(outputs) - self._row_names
        self._rows_left = set(range(len(parts))) if self._row_names else set()
        self._sums_left = set(range(num_sums)) if self._sum_names else set()
        self._lock = threading.Lock()

    @property
    def complete(self) -> bool:
        """Whether everything is there."""
        with self._lock:
            return not self._rows_left and not self._sums_left

    def missing(self) -> list[int]:
        """The parts of which something is still to come, where the sums are cut as the rows are."""
        with self._lock:
            return sorted(self._rows_left | self._sums_left)

    def wants(self, part: int) -> bool:
        """Whether something of a part is still to come, where the sums are cut as the rows are."""
        with self._lock:
            return part in self._rows_left or part in self._sums_left

    def take(self, part: int, arrays: Mapping[str, Array]) -> bool:
        """Take all of a part, rows and sums; whether any of it was still wanted."""
        rows = {name: array for name, array in arrays.items() if not is_summed(name)}
        sums = {name: array for name, array in arrays.items() if name not in rows}
        if (rows and not self._row_names) or (sums and not self._sum_names):
            raise ProgramError(f"{_listed(arrays)} were brought, but the task gives {sorted(self._shapes)}.")
        taken = self.take_rows(part, rows) if self._row_names else False
        return (self.take_sums(part, sums) if self._sum_names else False) or taken

    def take_rows(self, part: int, arrays: Mapping[str, Array]) -> bool:
        """Take a part's rows; False where they are there already."""
        self._check_number(part, len(self._parts))
        begin, end = self._parts[part]
        self._check(arrays, self._row_names, end - begin)
        with self._lock:
            if part not in self._rows_left:
                return False
            for name, array in widen(arrays).items():
                if name not in self._rows:
                    self._rows[name] = np.empty((self._parts[-1][1], *array.shape[1:]), np.float32)
                self._rows[name][begin:end] = array
            self._rows_left.remove(part)
            return True

    def take_sums(self, part: int, arrays: Mapping[str, Array]) -> bool:
        """Take a part's sums; False where they are there already."""
        self._check(arrays, self._sum_names, 0)
        with self._lock:
            if part not in self._sums_left:
                return False
            self._sums[part] = {name: array.copy() for name, array in arrays.items()}
            self._sums_left.remove(part)
            return True

    def arrays(self) -> Arrays:
        """All outputs of a task that is complete, in memory that is nobody else's."""
        sums: Arrays = {}
        for name in self._sum_names:
            sums[name] = reduce(np.add, (self._sums[part][name] for part in sorted(self._sums)))
        return {**self._rows, **sums}

    def _check_number(self, part: int, num_parts: int) -> None:
        if not 0 <= part < num_parts:
            raise ProgramError(f"part {part} was brought of a task with {num_parts}: they count from 0.")

    def _check(self, arrays: Mapping[str, Array], expected: set[str], num_rows: int) -> None:
        travelling: dict[str, Form] = {}
        for name in expected:
            shape = self._shapes[name] if is_summed(name) else (num_rows, *self._shapes[name])
            travelling |= forms(name, shape, self._precision)
        if arrays.keys() != travelling.keys():
            raise ProgramError(f"{_listed(arrays)} were brought, but the task gives {sorted(travelling)}.")
        for name, (dtype, shape) in travelling.items():
            array = arrays[name]
            if array.dtype != dtype or array.shape != shape:
                raise ProgramError(
                    f"{name} was brought as {array.dtype}{list(array.shape)}, but it is {dtype}{list(shape)}."
                )


def _listed(arrays: Mapping[str, Array]) -> str:
    names = sorted(arrays)
    return str(names) if len(names) <= _NAMES_SHOWN else f"{len(names)} arrays"


def output_shapes(
    call: Call, outputs: Sequence[str], kept: Mapping[str, int] | None = None
) -> dict[str, tuple[int, ...]]:
    """The shape of each output of a call, or of a row of it where it is cut by row; ``kept`` are its program's."""
    shapes: dict[str, tuple[int, ...]] = {name: (width,) for name, width in (kept or {}).items()}
    for i, width in enumerate(columns_of(call) if call.mode is Mode.FORWARD else ()):
        shapes[called(ArrayRole.OUTPUT, i)] = (width,)
    for i, rows in enumerate(call.inputs):
        shapes[called(ArrayRole.INPUT_GRAD, i)] = tuple(rows.shape[1:])
    for name, weight in call.weights.items():
        shapes[called(ArrayRole.WEIGHT_GRAD, name)] = tuple(weight.shape)
    shapes[called(ArrayRole.LOSS)] = ()
    return {name: shapes[name] for name in outputs}


def columns_of(call: Call) -> tuple[int, ...]:
    """The widths of a body's outputs: those the call says, or else what one row gives."""
    if call.columns:
        return call.columns
    one = tuple(_first_row(rows) for rows in call.inputs)
    with torch.no_grad():
        return tuple(output.shape[1] for output in call.body(call.weights, one))


def _first_row(rows: Rows) -> Rows:
    return replace(rows, indptr=rows.indptr[:2]) if isinstance(rows, SparseRows) else rows[:1]


@dataclass(eq=False)
class TaskAttempt:
    """One submission of a call; ``jobs`` is how many of its invocations are still to end.

    ``replaced``: a later submission of the call has taken its place, or the call was cancelled: it is waited for no
    longer.
    """

    done: Callable[[Reply], None]
    failed: Callable[[BaseException], None]
    answered: bool = False
    jobs: int = 0
    replaced: bool = False


class TaskWork:
    """What a task is once its program is known: inputs cut into parts, and the outcome they add up to."""

    def __init__(
        self,
        call: Call,
        program: ExportedProgram,
        inputs: Inputs,
        parts: list[Part],
        precision: str = "float32",
        *,
        sums_apart: bool,
    ) -> None:
        self.program, self.inputs, self.parts = program, inputs, parts
        shapes = output_shapes(call, program.outputs, program.kept)
        self.outcome = Outcome(shapes, parts, len(parts) if sums_apart else 1, precision)


@dataclass(eq=False)
class OpenTask:
    """A call and its attempts; touched under the pool's lock, but for ``work``, which is set once.

    ``id`` names this registration of the call and no other, in this run or any: it is what functions bring back.
    """

    id: str
    call: Call
    attempts: list[TaskAttempt] = field(default_factory=list)
    work: TaskWork | None = None
    over: bool = False
    over_s: float = 0.0  # when that was

    @property
    def kind(self) -> str:
        """What its usage is counted under."""
        return str(self.call.task.kind)
