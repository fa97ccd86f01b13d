"""What a forward task hands to its gradient where that is not to run the body again: what autograd saves.

- Inputs, weights and views of them are not handed over: the gradient has those.
- Outputs are, under their own name: the reply holds them anyway.
- Other tensors with a row for each row are: ``saved.0``, ``saved.1`` and so on, as matrices, like all that travels.
- Tensors without one are made of weights alone, or of several rows; whole numbers are places among the rows they were
  found with, and mean nothing among others. The gradient computes both again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from dorylus.functions.program import Role, called

_TRAVELS = frozenset({torch.float32, torch.bool})


class Listener:
    """Hears what autograd saves under its ``hooks``, and gives back what stands ``instead`` of it, if anything does."""

    def __init__(self, instead: Sequence[Tensor | None] = ()) -> None:
        self.heard: list[Tensor] = []
        self._instead = instead

    def hooks(self) -> saved_tensors_hooks:
        """To run a body under."""
        return saved_tensors_hooks(self._hear, self._give)

    def _hear(self, tensor: Tensor) -> int:
        self.heard.append(tensor.detach())
        return len(self.heard) - 1

    def _give(self, number: int) -> Tensor:
        instead = self._instead[number] if number < len(self._instead) else None
        return self.heard[number] if instead is None else instead


@dataclass(frozen=True)
class Source:
    """Where the gradient gets a saved tensor from: a matrix by name. ``axis`` is the tensor's axis of rows."""

    name: str
    axis: int
    shape: tuple[int, ...]  # of the tensor without that axis
    dtype: torch.dtype

    def matrix(self, tensor: Tensor) -> Tensor:
        """The matrix that holds a tensor."""
        rows = tensor.movedim(self.axis, 0) if self.axis else tensor
        return (rows.flatten(1) if self.shape else rows.unsqueeze(1)).to(torch.float32)

    def tensor(self, matrix: Tensor) -> Tensor:
        """The tensor that a matrix holds."""
        rows = matrix.to(self.dtype)
        if len(self.shape) != 1:
            rows = rows.reshape(rows.shape[0], *self.shape)
        return rows.movedim(0, self.axis) if self.axis else rows


@dataclass(frozen=True)
class Heard:
    """A run on some rows: what the body was given, what it gave, and what autograd saved."""

    num_rows: int
    given: Sequence[Tensor]
    outputs: Sequence[Tensor]
    saved: Sequence[Tensor]


def sources(few: Heard, more: Heard) -> tuple[Source | None, ...]:
    """Where the gradient gets each saved tensor from; None: it makes it. Found by two runs on different rows."""
    at_hand = {_memory(tensor) for tensor in more.given}
    names = {_content(output, 0): called(Role.OUTPUT, index) for index, output in enumerate(more.outputs)}
    num_outputs = len(names)
    found: list[Source | None] = []
    for small, large in zip(few.saved, more.saved, strict=False):  # where they differ in number, so do the programs
        axis = _rows_axis(small, few.num_rows, large, more.num_rows)
        if axis is None or large.dtype not in _TRAVELS or _memory(large) in at_hand:
            found.append(None)
        else:
            name = names.setdefault(_content(large, axis), called(Role.SAVED, len(names) - num_outputs))
            found.append(Source(name, axis, tuple(large.movedim(axis, 0).shape[1:]), large.dtype))
    return tuple(found)


def place(tensor: Tensor) -> object:
    """Where a tensor lies: what autograd has kept is another object over the same memory."""
    return (_memory(tensor), tensor.storage_offset(), tensor.dtype, tuple(tensor.shape), tensor.stride())


def _memory(tensor: Tensor) -> Any:
    return tensor.untyped_storage().data_ptr()


def _content(tensor: Tensor, axis: int) -> object:
    """What is the same for tensors that are the same rows, whatever shape a row has."""
    if axis == 0 and tensor.is_contiguous():
        return (_memory(tensor), tensor.storage_offset(), tensor.dtype, tensor.numel())
    return place(tensor)


def _rows_axis(small: Tensor, few: int, large: Tensor, more: int) -> int | None:
    """The one axis that follows the number of rows; None if there is none, or if more than that changes."""
    if small.dim() != large.dim():
        return None
    sizes = enumerate(zip(small.shape, large.shape, strict=True))
    changed = {axis: both for axis, both in sizes if both[0] != both[1]}
    return next(iter(changed)) if list(changed.values()) == [(few, more)] else None
