"""The reference's shared words: float64 of any matrix, rounding to bfloat16, the rows of a range."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dorylus.backends.native.types import Array, Bf16, Offsets


def f64(x: Array) -> npt.NDArray[np.float64]:
    """x as float64, whether it holds float32, float64 or bfloat16."""
    if x.dtype == np.uint16:
        x = (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float64)


def nearest_bf16(x: Array) -> Bf16:
    """The nearest bfloat16: of the two neighbours the closer one, of two equally close the even one."""
    x32 = x.astype(np.float32)
    low = x32.view(np.uint32) >> 16
    with np.errstate(over="ignore", invalid="ignore"):
        middle = ((low << 16) | 0x8000).view(np.float32)
        away = np.abs(x32) > np.abs(middle)
    tie = x32 == middle
    rounded = np.where(away | (tie & (low % 2 == 1)), low + 1, low)
    return np.where(np.isnan(x32), 0x7FC0, rounded).astype(np.uint16)


def rows_of(indptr: Offsets, begin: int, end: int) -> Iterator[tuple[int, slice]]:
    """The rows of a range, each with its edges."""
    for v in range(begin, end):
        yield v, slice(int(indptr[v]), int(indptr[v + 1]))


def write(out: Array, row: int, value: Array, accumulate: bool) -> None:
    """Stores a row, or adds to it."""
    out[row] = out[row] + value if accumulate else value


def maximum(rows: Array) -> tuple[Array, Array]:
    """The columnwise maximum of some rows, and how many attain it; 0 and 1 of no rows."""
    if not len(rows):
        return np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    return rows.max(axis=0), np.sum(rows == rows.max(axis=0), axis=0)
