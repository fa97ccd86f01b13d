"""The bench of a graph server: its shard, the matrices of one pass over it, and how rows are stored in them.

A matrix has one row per own vertex. One that others' rows are gathered from has ghost rows after those: in-ghosts for
rows gathered forward, out-ghosts for cotangents gathered backward.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import native
from dorylus.partition import Ghosts, Layout, LocalShard
from dorylus.saga import Slot
from dorylus.servers.graph.matrices import Matrices

Matrix = NDArray[Any]


@dataclass(frozen=True)
class Grad:
    """The name under which a slot's cotangent is held."""

    slot: Slot


@dataclass(frozen=True)
class Extra:
    """The name of a matrix a gather keeps for its own gradient."""

    slot: Slot
    what: str


@dataclass(frozen=True)
class Published:
    """The name of a matrix that ∇SC fills for the sources' ∇GA: own rows, then out-ghosts."""

    slot: Slot
    what: str


@dataclass(frozen=True, eq=False)
class PassContext:
    """What gathers work on. ``gathered_dtype`` is the precision in which gathered values are stored."""

    shard: LocalShard
    layout: Layout
    ghosts: Ghosts
    out_ghosts: Ghosts
    matrices: Matrices
    training: bool
    seed: int
    gathered_dtype: np.dtype[Any]

    @property
    def num_rows(self) -> int:
        """How many vertices the server owns."""
        return self.shard.num_vertices

    def values(self, slot: Slot) -> Matrix:
        """The matrix of a slot."""
        narrow = slot.gathered and not slot.exact
        rows = self.num_rows + (self.ghosts.num_rows if slot.gathered else 0)
        return self.matrices.get(slot, rows, slot.columns, self.gathered_dtype if narrow else np.float32)

    def wide(self, slot: Slot, begin: int, end: int) -> Matrix:
        """Some rows of a slot, as float32."""
        rows = self.values(slot)[begin:end]
        if rows.dtype != np.uint16:
            return rows
        wide = np.empty(rows.shape, np.float32)
        native.from_bf16(rows, wide, 0, len(rows))
        return wide

    def cotangent(self, slot: Slot) -> Matrix:
        """The matrix of a slot's cotangent, own rows only, always float32."""
        return self.matrices.get(Grad(slot), self.num_rows, slot.columns)

    def extra(self, slot: Slot, what: str, columns: int) -> Matrix:
        """A matrix a gather keeps for its own gradient."""
        return self.matrices.get(Extra(slot, what), self.num_rows, columns)

    def published(self, slot: Slot, what: str, columns: int, *, narrow: bool = False) -> Matrix:
        """A matrix that others' ∇GA reads."""
        dtype = self.gathered_dtype if narrow else np.dtype(np.float32)
        return self.matrices.get(Published(slot, what), self.num_rows + self.out_ghosts.num_rows, columns, dtype)

    def store(self, source: Matrix, target: Matrix, begin: int, end: int) -> None:
        """Write rows into a matrix, in its precision."""
        if target.dtype == np.uint16:
            native.to_bf16(source, target[begin:end], 0, end - begin)
        else:
            target[begin:end] = source
