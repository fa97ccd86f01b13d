"""Calls and replies as they travel between processes that share no memory: plain arrays in place of tensors.

Pickle moves the memory of arrays without copying it, which it does not do for tensors. Body and weights stay behind:
many calls have them in common, so they travel by themselves. Whatever arrives is copied once: it may lie in memory that
others read, and bodies of a user's may write to what they are given.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dorylus.pipeline import Task
from dorylus.saga.dense import Call, Mode, Reply, Targets
from dorylus.saga.layer import Rows
from dorylus.saga.sparse import SparseRows
from dorylus.saga.stages import Body

Array = NDArray[Any]
PackedRows = Array | SparseRows
PackedWeights = dict[str, tuple[Array, bool]]  # and whether their gradient is wanted


@dataclass(frozen=True)
class PackedCall:
    """A call, less its body, its weights and what it kept in the process that made it."""

    task: Task
    mode: Mode
    inputs: tuple[PackedRows, ...]
    wanted: tuple[bool, ...]
    cotangents: tuple[Array | None, ...]
    targets: tuple[str, Array, float] | None
    columns: tuple[int, ...]

    @staticmethod
    def of(call: Call) -> "PackedCall":
        """Ready to leave; shares its memory with the call, but for sparse rows, which are cut out of the matrix."""
        targets = call.targets
        return PackedCall(
            call.task,
            call.mode,
            tuple(_array(rows) if isinstance(rows, Tensor) else _cut(rows) for rows in call.inputs),
            call.wanted,
            tuple(None if each is None else _array(each) for each in call.cotangents),
            None if targets is None else (targets.loss, _array(targets.labels), targets.total),
            call.columns,
        )

    def call(self, body: Body, weights: Mapping[str, Tensor]) -> Call:
        """The call, as it is carried out elsewhere."""
        targets = None
        if self.targets is not None:
            loss, labels, total = self.targets
            targets = Targets(loss, _tensor(labels), total)
        inputs = tuple(_arrived(rows) for rows in self.inputs)
        cotangents = tuple(None if each is None else _tensor(each) for each in self.cotangents)
        return Call(self.task, self.mode, body, weights, inputs, self.wanted, cotangents, targets, self.columns)

    @property
    def nbytes(self) -> int:
        """The size of its arrays."""
        labels = [] if self.targets is None else [self.targets[1]]
        dense = [rows for rows in self.inputs if not isinstance(rows, SparseRows)]
        sparse = [
            part
            for rows in self.inputs
            if isinstance(rows, SparseRows)
            for part in (rows.indptr, rows.indices, rows.values)
        ]
        return _size([*dense, *sparse, *self.cotangents, *labels])


@dataclass(frozen=True)
class PackedReply:
    """A reply, less what it kept."""

    outputs: tuple[Array, ...]
    input_grads: tuple[Array | None, ...]
    weight_grads: dict[str, Array]
    loss: float

    @staticmethod
    def of(reply: Reply) -> "PackedReply":
        """Ready to leave."""
        return PackedReply(
            tuple(_array(each) for each in reply.outputs),
            tuple(None if each is None else _array(each) for each in reply.input_grads),
            {name: _array(grad) for name, grad in reply.weight_grads.items()},
            reply.loss,
        )

    def reply(self) -> Reply:
        """The reply, in memory of its own."""
        return Reply(
            tuple(_tensor(each) for each in self.outputs),
            tuple(None if each is None else _tensor(each) for each in self.input_grads),
            {name: _tensor(grad) for name, grad in self.weight_grads.items()},
            self.loss,
        )

    @property
    def nbytes(self) -> int:
        """The size of its arrays."""
        return _size([*self.outputs, *self.input_grads, *self.weight_grads.values()])


def packed_weights(weights: Mapping[str, Tensor]) -> PackedWeights:
    """One version of the weights, ready to leave."""
    return {name: (_array(weight), weight.requires_grad) for name, weight in weights.items()}


def unpacked_weights(packed: PackedWeights) -> dict[str, Tensor]:
    """The version, as bodies take it."""
    return {name: _tensor(array).requires_grad_(trained) for name, (array, trained) in packed.items()}


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().contiguous().numpy()
    return array


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.array(array))


def _cut(rows: SparseRows) -> SparseRows:
    """The same rows without the rest of the matrix, which their entries lie in."""
    first, last = int(rows.indptr[0]), int(rows.indptr[-1])
    return SparseRows(rows.indptr - first, rows.indices[first:last], rows.values[first:last], rows.num_columns)


def _arrived(rows: PackedRows) -> Rows:
    if not isinstance(rows, SparseRows):
        return _tensor(rows)
    return replace(rows, indptr=np.array(rows.indptr), indices=np.array(rows.indices), values=np.array(rows.values))


def _size(arrays: Iterable[Array | None]) -> int:
    return sum(each.nbytes for each in arrays if each is not None)
