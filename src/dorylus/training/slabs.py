"""Slabs: rows that come in blocks of any size, brought to one size that is worth a write and takes little memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SLAB_ROWS, SLAB_BYTES = 131_072, 1 << 23  # at most

Rows = NDArray[Any]


@dataclass(frozen=True)
class Form:
    """What predictions look like: so many rows, of so many numbers each (None: one, not a list), of a type."""

    num_rows: int
    columns: int | None
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all of them as an array."""
        return (self.num_rows,) if self.columns is None else (self.num_rows, self.columns)

    @property
    def num_bytes(self) -> int:
        """The bytes of all rows."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def slab(self) -> Rows:
        """Room for the rows that are written together."""
        row_bytes = max(1, self.num_bytes // max(1, self.num_rows))
        return np.empty((max(1, min(SLAB_ROWS, SLAB_BYTES // row_bytes, self.num_rows)), *self.shape[1:]), self.dtype)


def slabs(blocks: Iterable[Rows], form: Form) -> Iterator[Rows]:
    """The same rows in slabs of one size, the last but for; a slab holds until the next is asked for."""
    slab, filled = form.slab, 0
    for block in blocks:
        taken = 0
        while taken < len(block):
            count = min(len(block) - taken, len(slab) - filled)
            slab[filled : filled + count] = block[taken : taken + count]
            taken, filled = taken + count, filled + count
            if filled == len(slab):
                yield slab
                filled = 0
    if filled:
        yield slab[:filled]
