"""Calls as named arrays, and named arrays as replies: the two ends of a dense task that runs elsewhere.

What is cut by row is cut without copying; nothing leaves this process but what a program reads.

How the rows of a task are cut into parts that travel one by one.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dorylus.errors import ConfigError
from dorylus.functions import CSR, ROW_ROLES, ArrayRole, ExportedProgram, called, is_cut_by_row, is_summed, role, which
from dorylus.saga import Call, Mode, Reply, Saved, SparseRows

Array = NDArray[Any]
Arrays = dict[str, Array]


class Inputs:
    """What a program reads of a call: ``by_row`` what is cut by row, ``weights``, and ``whole``, the rest."""

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
    """The reply that a call's arrays make. Their memory becomes the reply's: nobody else may write to it.

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
    """What a call holds under a name: an array, or sparse rows."""
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


HEAD_BYTES = 4096  # room for a frame's header
ENTRY_BYTES = 8  # of a sparse row: its column and its value

Part = tuple[int, int]  # the first row, and the one after the last


def even(num_rows: int, part_rows: int) -> list[Part]:
    """Parts of ``part_rows`` rows; the last may have fewer."""
    bounds = [*range(0, num_rows, part_rows), num_rows]
    return list(pairwise(bounds))


def rows_within(row_bytes: int, part_bytes: int) -> int:
    """How many rows a part of so many bytes has: at least one."""
    return max(1, part_bytes // max(1, row_bytes))


def row_bytes(inputs: Inputs, precision: str) -> int:
    """What a row weighs on its way to a function, sparse ones on average."""
    total = 0
    for name, rows in inputs.by_row.items():
        if isinstance(rows, SparseRows):
            total += 8 + ENTRY_BYTES * int(rows.indptr[-1] - rows.indptr[0]) // max(1, inputs.num_rows)
        else:
            total += dense_row_bytes(name, rows.nbytes // max(1, len(rows)), precision)
    return total


def out_row_bytes(shapes: Mapping[str, tuple[int, ...]], precision: str) -> int:
    """What a row weighs on its way back; ``shapes`` are those of the outputs."""
    by_row = {name: shape for name, shape in shapes.items() if not is_summed(name)}
    return sum(dense_row_bytes(name, 4 * prod(shape), precision) for name, shape in by_row.items())


def within(inputs: Inputs, precision: str, limit_bytes: int, whole_bytes: int, out_bytes: int) -> list[Part]:
    """Parts such that each one's inputs, and its outputs, stay within a limit.

    ``whole_bytes``: what travels with every part, the weights above all. ``out_bytes``: what a row weighs on its way
    back.
    """
    room = limit_bytes - whole_bytes - HEAD_BYTES
    most = room // max(1, out_bytes)
    cumulative = _cumulative_bytes(inputs, precision)
    heaviest = int(np.diff(cumulative).max(initial=0))
    if room < heaviest or most < 1:
        raise ConfigError(
            f"the weights of a task take {whole_bytes} bytes and one row up to {max(heaviest, out_bytes)}, but the "
            f"service takes at most {limit_bytes} with an invocation: use data_path='direct', or a narrower layer."
        )
    parts, begin = [], 0
    while begin < inputs.num_rows:
        fitting = int(np.searchsorted(cumulative, cumulative[begin] + room, side="right")) - 1
        end = min(fitting, begin + most, inputs.num_rows)
        parts.append((begin, end))
        begin = end
    return parts


def _cumulative_bytes(inputs: Inputs, precision: str) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """What the rows before each row weigh."""
    total = np.zeros(inputs.num_rows + 1, np.int64)
    for name, rows in inputs.by_row.items():
        if isinstance(rows, SparseRows):
            total += 8 * np.arange(inputs.num_rows + 1) + ENTRY_BYTES * (rows.indptr - rows.indptr[0])
        else:
            total += dense_row_bytes(name, rows.nbytes // max(1, len(rows)), precision) * np.arange(inputs.num_rows + 1)
    return total


def dense_row_bytes(name: str, float32_bytes: int, precision: str) -> int:
    """What a row that has so many bytes in float32 weighs as it travels."""
    if precision == "float32" or role(name) not in ROW_ROLES or float32_bytes <= 4:
        return float32_bytes
    return float32_bytes // 2 if precision == "bf16" else float32_bytes // 4 + 4
