"""Calls as named arrays, and named arrays as replies: the two ends of a dense task that runs elsewhere.

What is cut by row is cut without copying; nothing leaves this process but what a program reads.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dorylus.functions.payload import CSR
from dorylus.functions.program import Program, Role, called, is_cut_by_row, role, which
from dorylus.saga.dense import Call, Mode, Reply, Saved
from dorylus.saga.sparse import SparseRows

Array = NDArray[Any]
Arrays = dict[str, Array]


class Inputs:
    """What a program reads of a call: ``by_row`` what is cut by row, ``weights``, and ``whole``, the rest."""

    def __init__(self, call: Call, program: Program) -> None:
        self.num_rows = call.inputs[0].shape[0]
        self.by_row: dict[str, Array | SparseRows] = {}
        self.weights: Arrays = {}
        self.whole: Arrays = {}
        for name in program.inputs:
            given = _given(call, name)
            if isinstance(given, SparseRows) or is_cut_by_row(name):
                self.by_row[name] = given
            else:
                (self.weights if role(name) is Role.WEIGHT else self.whole)[name] = given
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
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items() if role(name) is not Role.LOSS}
    num_outputs = sum(role(name) is Role.OUTPUT for name in tensors)
    grads = () if call.mode is Mode.FORWARD else range(len(call.inputs))
    return Reply(
        tuple(tensors[called(Role.OUTPUT, i)] for i in range(num_outputs)),
        tuple(tensors.get(called(Role.INPUT_GRAD, i)) for i in grads),
        {which(name): grad for name, grad in tensors.items() if role(name) is Role.WEIGHT_GRAD},
        float(arrays[called(Role.LOSS)]) if call.mode is Mode.LOSS else 0.0,
        None if kept is None else Saved(call.inputs, {name: tensors[name] for name in kept}),
    )


def _given(call: Call, name: str) -> Any:
    """What a call holds under a name: an array, or sparse rows."""
    kind = role(name)
    if kind is Role.WEIGHT:
        return array_of(call.weights[which(name)])
    if kind is Role.TOTAL:
        assert call.targets is not None
        return np.asarray(call.targets.total, np.float32)
    if kind is Role.LABELS:
        assert call.targets is not None
        return array_of(call.targets.labels)
    if kind in (Role.SAVED, Role.OUTPUT):
        assert isinstance(call.kept, Saved)
        return array_of(call.kept.arrays[name])
    rows = (call.inputs if kind is Role.ROWS else call.cotangents)[int(which(name))]
    assert rows is not None
    return rows if isinstance(rows, SparseRows) else array_of(rows)


def _sparse_part(name: str, rows: SparseRows, begin: int, end: int) -> Arrays:
    first, last = int(rows.indptr[begin]), int(rows.indptr[end])
    cut: tuple[Array, ...] = (rows.indptr[begin : end + 1] - first, rows.indices[first:last], rows.values[first:last])
    return {name + part: array for part, array in zip(CSR, cut, strict=True)}
