"""What travels between graph servers: the rows of one interval, for the ghosts of one peer, in one parcel.

A parcel carries plain arrays and the task they come from; where its rows go follows from the task and the receiver's
ghost table, so nothing else is sent. How parcels travel is the cluster's business.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dorylus import kernels
from dorylus.pipeline import Task

Matrix = NDArray[Any]


class Parcel(NamedTuple):
    """The rows that a finished SC or ∇SC makes visible, for one peer."""

    task: Task
    parts: tuple[Matrix, ...]

    @property
    def num_bytes(self) -> int:
        """What it weighs on the wire, less the frame."""
        return sum(part.nbytes for part in self.parts)


Post = Callable[[int, Parcel], None]  # (peer, parcel): sees to it that the peer gets the parcel
Traffic = Counter[str]  # bytes by kind


def packed(matrix: Matrix, rows: NDArray[np.int32], *, narrow: bool) -> Matrix:
    """Some rows of a matrix as they travel: bfloat16 where the matrix holds it or ``narrow`` asks for it."""
    if matrix.dtype == np.uint16:
        taken: Matrix = matrix[rows]
        return taken
    out = np.empty((len(rows), matrix.shape[1]), np.float32)
    kernels.gather_rows(matrix, rows, out)
    if not narrow:
        return out
    short = np.empty(out.shape, np.uint16)
    kernels.to_bf16(out, short, 0, len(out))
    return short


def unpack(part: Matrix, target: Matrix) -> None:
    """Write rows that travelled into the ghosts' place."""
    if part.dtype == target.dtype:
        target[:] = part
    elif part.dtype == np.uint16:
        kernels.from_bf16(part, target, 0, len(part))
    else:
        kernels.to_bf16(part, target, 0, len(part))
