"""A task as named arrays: its inputs, cut into parts that travel one by one, and the outputs that come back.

Rows are cut without copying; only arrays that a program reads leave this process. Each part of the outputs is
accepted once, from the attempt that brings it first.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dorylus.errors import ConfigError, given
from dorylus.functions import (
    CSR,
    ROW_ROLES,
    ArrayRole,
    ExportedProgram,
    Form,
    ProgramError,
    called,
    forms,
    is_cut_by_row,
    is_summed,
    role,
    which,
    widen,
)
from dorylus.saga import Call, Mode, Reply, Rows, Saved, SparseRows

Array = NDArray[Any]
Arrays = dict[str, Array]
HEAD_BYTES = 4096  # room for a frame's header
ENTRY_BYTES = 8  # of a sparse row: its column and its value
RowRange = tuple[int, int]  # the first row, and the one after the last
_NAMES_SHOWN = 32


class Inputs:
    """The arrays of a call that a program reads: ``by_row`` is split by row, ``weights`` and ``whole`` are not."""

    def __init__(self, call: Call, program: ExportedProgram) -> None:
        self.num_rows = call.inputs[0].shape[0]
        self.by_row: dict[str, Array | SparseRows] = {}
        self.weights: Arrays = {}
        self.whole: Arrays = {}
        for name in program.inputs:
            given = _given(call, name)
            if isinstance(given, SparseRows) or is_cut_by_row(name):
                self.by_row[name] = given
            else:
                (self.weights if role(name) is ArrayRole.WEIGHT else self.whole)[name] = given
        for name, rows in self.by_row.items():
            if rows.shape[0] != self.num_rows:
                raise ValueError(f"{name} has {rows.shape[0]} rows and rows.0 has {self.num_rows}: give all as many.")

    @property
    def columns(self) -> dict[str, int]:
        """The widths of the sparse inputs, by name."""
        return {name: rows.num_columns for name, rows in self.by_row.items() if isinstance(rows, SparseRows)}

    def part(self, begin: int, end: int) -> Arrays:
        """The arrays of some rows: views, but for the offsets of sparse ones."""
        cut: Arrays = {}
        for name, rows in self.by_row.items():
            if isinstance(rows, SparseRows):
                cut.update(_sparse_part(name, rows, begin, end))
            else:
                cut[name] = rows[begin:end]
        return cut


def array_of(tensor: Tensor) -> Array:
    """A tensor's own memory; a copy only where it is not contiguous."""
    array: Array = tensor.detach().contiguous().numpy()
    return array


def reply_of(call: Call, arrays: Mapping[str, Array], kept: Iterable[str] | None = None) -> Reply:
    """The reply that a call's arrays make. The reply takes over their memory: nothing else may write to it.

    ``kept`` are those that its gradient reads, None where that is to run the body again.
    """
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items() if role(name) is not ArrayRole.LOSS}
    num_outputs = sum(role(name) is ArrayRole.OUTPUT for name in tensors)
    grads = () if call.mode is Mode.FORWARD else range(len(call.inputs))
    return Reply(
        tuple(tensors[called(ArrayRole.OUTPUT, i)] for i in range(num_outputs)),
        tuple(tensors.get(called(ArrayRole.INPUT_GRAD, i)) for i in grads),
        {which(name): grad for name, grad in tensors.items() if role(name) is ArrayRole.WEIGHT_GRAD},
        float(arrays[called(ArrayRole.LOSS)]) if call.mode is Mode.LOSS else 0.0,
        None if kept is None else Saved(call.inputs, {name: tensors[name] for name in kept}),
    )


def _given(call: Call, name: str) -> Any:
    """The array or sparse rows of a call by name."""
    kind = role(name)
    if kind is ArrayRole.WEIGHT:
        return array_of(call.weights[which(name)])
    if kind is ArrayRole.TOTAL:
        assert call.targets is not None
        return np.asarray(call.targets.total, np.float32)
    if kind is ArrayRole.LABELS:
        assert call.targets is not None
        return array_of(call.targets.labels)
    if kind in (ArrayRole.SAVED, ArrayRole.OUTPUT):
        assert isinstance(call.kept, Saved)
        return array_of(call.kept.arrays[name])
    rows = (call.inputs if kind is ArrayRole.ROWS else call.cotangents)[int(which(name))]
    assert rows is not None
    return rows if isinstance(rows, SparseRows) else array_of(rows)


def _sparse_part(name: str, rows: SparseRows, begin: int, end: int) -> Arrays:
    first, last = int(rows.indptr[begin]), int(rows.indptr[end])
    cut: tuple[Array, ...] = (rows.indptr[begin : end + 1] - first, rows.indices[first:last], rows.values[first:last])
    return {name + part: array for part, array in zip(CSR, cut, strict=True)}


def even(num_rows: int, part_rows: int) -> list[RowRange]:
    """Parts of ``part_rows`` rows; the last may have fewer."""
    bounds = [*range(0, num_rows, part_rows), num_rows]
    return list(pairwise(bounds))


def rows_within(row_bytes: int, part_bytes: int) -> int:
    """The number of rows in a part of so many bytes: at least one."""
    return max(1, part_bytes // max(1, row_bytes))


def row_bytes(inputs: Inputs, precision: str) -> int:
    """The bytes of a row sent to a function, of a sparse one on average."""
    total = 0
    for name, rows in inputs.by_row.items():
        if isinstance(rows, SparseRows):
            total += 8 + ENTRY_BYTES * int(rows.indptr[-1] - rows.indptr[0]) // max(1, inputs.num_rows)
        else:
            total += dense_row_bytes(name, rows.nbytes // max(1, len(rows)), precision)
    return total


def out_row_bytes(shapes: Mapping[str, tuple[int, ...]], precision: str) -> int:
    """The bytes of a row sent back; ``shapes`` are those of the outputs."""
    by_row = {name: shape for name, shape in shapes.items() if not is_summed(name)}
    return sum(dense_row_bytes(name, 4 * prod(shape), precision) for name, shape in by_row.items())


def within(inputs: Inputs, precision: str, limit_bytes: int, whole_bytes: int, out_bytes: int) -> list[RowRange]:
    """Parts such that each one's inputs, and its outputs, stay within a limit.

    ``whole_bytes``: what travels with every part, the weights above all. ``out_bytes``: those of a row that is sent
    back.
    """
    room = limit_bytes - whole_bytes - HEAD_BYTES
    most = room // max(1, out_bytes)
    cumulative = _cumulative_bytes(inputs, precision)
    heaviest = int(np.diff(cumulative).max(initial=0))
    if room < heaviest or most < 1:
        raise ConfigError(
            f"the weights of a task take {whole_bytes} bytes and one row up to {max(heaviest, out_bytes)}, but the "
            f"service takes at most {limit_bytes} with an invocation: use {given('data_path', 'direct')}, or a "
            "narrower layer."
        )
    parts, begin = [], 0
    while begin < inputs.num_rows:
        fitting = int(np.searchsorted(cumulative, cumulative[begin] + room, side="right")) - 1
        end = min(fitting, begin + most, inputs.num_rows)
        parts.append((begin, end))
        begin = end
    return parts


def _cumulative_bytes(inputs: Inputs, precision: str) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """The bytes of all rows before each row."""
    total = np.zeros(inputs.num_rows + 1, np.int64)
    for name, rows in inputs.by_row.items():
        if isinstance(rows, SparseRows):
            total += 8 * np.arange(inputs.num_rows + 1) + ENTRY_BYTES * (rows.indptr - rows.indptr[0])
        else:
            total += dense_row_bytes(name, rows.nbytes // max(1, len(rows)), precision) * np.arange(inputs.num_rows + 1)
    return total


def dense_row_bytes(name: str, float32_bytes: int, precision: str) -> int:
    """The bytes in which a row of so many float32 bytes travels."""
    if precision == "float32" or role(name) not in ROW_ROLES or float32_bytes <= 4:
        return float32_bytes
    return float32_bytes // 2 if precision == "bf16" else float32_bytes // 4 + 4


class Outcome:
    """Puts a task's outputs together: rows one after the other, sums added up in the order of their parts.

    ``num_sums``: into how many parts the sums are cut; as many as the rows where each part is an invocation of its own,
    one where a function adds them up itself. Pieces arrive as they travel, rows in ``precision``; a piece of another
    type or shape than the task's is refused before memory is allocated for it. Any thread may add a part.
    """

    def __init__(
        self,
        outputs: Mapping[str, tuple[int, ...]],
        parts: Sequence[RowRange],
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
        """Whether all parts have arrived."""
        with self._lock:
            return not self._rows_left and not self._sums_left

    def missing(self) -> list[int]:
        """The parts of which something is missing, where the sums are cut as the rows are."""
        with self._lock:
            return sorted(self._rows_left | self._sums_left)

    def lacks(self, part: int) -> bool:
        """Whether something of a part is missing, where the sums are cut as the rows are."""
        with self._lock:
            return part in self._rows_left or part in self._sums_left

    def take(self, part: int, arrays: Mapping[str, Array]) -> bool:
        """Add a part, rows and sums; returns whether any of it was missing."""
        rows = {name: array for name, array in arrays.items() if not is_summed(name)}
        sums = {name: array for name, array in arrays.items() if name not in rows}
        if (rows and not self._row_names) or (sums and not self._sum_names):
            raise ProgramError(f"{_listed(arrays)} arrived, but the task has the outputs {sorted(self._shapes)}.")
        is_new = self.take_rows(part, rows) if self._row_names else False
        return (self.take_sums(part, sums) if self._sum_names else False) or is_new

    def take_rows(self, part: int, arrays: Mapping[str, Array]) -> bool:
        """Add a part's rows; False if they had arrived."""
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
        """Add a part's sums; False if they had arrived."""
        self._check(arrays, self._sum_names, 0)
        with self._lock:
            if part not in self._sums_left:
                return False
            self._sums[part] = {name: array.copy() for name, array in arrays.items()}
            self._sums_left.remove(part)
            return True

    def arrays(self) -> Arrays:
        """All outputs of a complete task, in their own memory."""
        sums: Arrays = {}
        for name in self._sum_names:
            sums[name] = reduce(np.add, (self._sums[part][name] for part in sorted(self._sums)))
        return {**self._rows, **sums}

    def _check_number(self, part: int, num_parts: int) -> None:
        if not 0 <= part < num_parts:
            raise ProgramError(f"part {part} arrived for a task with {num_parts}: they count from 0.")

    def _check(self, arrays: Mapping[str, Array], expected: set[str], num_rows: int) -> None:
        travelling: dict[str, Form] = {}
        for name in expected:
            shape = self._shapes[name] if is_summed(name) else (num_rows, *self._shapes[name])
            travelling |= forms(name, shape, self._precision)
        if arrays.keys() != travelling.keys():
            raise ProgramError(f"{_listed(arrays)} arrived, but they travel as {sorted(travelling)}.")
        for name, (dtype, shape) in travelling.items():
            array = arrays[name]
            if array.dtype != dtype or array.shape != shape:
                raise ProgramError(
                    f"{name} arrived as {array.dtype}{list(array.shape)}, but it is {dtype}{list(shape)}."
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

    ``replaced``: a later submission replaced it, or the call was cancelled, so that it is no longer awaited.
    """

    done: Callable[[Reply], None]
    failed: Callable[[BaseException], None]
    answered: bool = False
    jobs: int = 0
    replaced: bool = False


class TaskWork:
    """A task with its program: the inputs cut into parts, and the outcome that collects the outputs."""

    def __init__(
        self,
        call: Call,
        program: ExportedProgram,
        inputs: Inputs,
        parts: list[RowRange],
        precision: str = "float32",
        *,
        sums_apart: bool,
    ) -> None:
        self.program, self.inputs, self.parts = program, inputs, parts
        shapes = output_shapes(call, program.outputs, program.kept)
        self.outcome = Outcome(shapes, parts, len(parts) if sums_apart else 1, precision)


@dataclass(eq=False)
class OpenTask:
    """A call and its attempts; accessed under the pool's lock, except ``work``, which is set once.

    ``id`` identifies this registration of the call across all runs; functions return it.
    """

    id: str
    call: Call
    attempts: list[TaskAttempt] = field(default_factory=list)
    work: TaskWork | None = None
    over: bool = False
    over_s: float = 0.0  # the time of completion

    @property
    def kind(self) -> str:
        """The kind of task that its usage is counted under."""
        return str(self.call.task.kind)
