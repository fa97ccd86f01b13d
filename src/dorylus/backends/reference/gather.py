"""The reference's part for the gather, its gradients, and whole rows; and what all parts share.

Shared: float64 of any matrix, rounding to bfloat16, the rows of a range.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dorylus.backends.native.types import Array, Bf16, Floats, Ints, Offsets


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


def spmm(
    indptr: Offsets,
    indices: Ints,
    x: Floats | Bf16,
    out: Floats,
    begin: int,
    end: int,
    *,
    values: Floats | None = None,
    row_scale: Floats | None = None,
    col_scale: Floats | None = None,
    mean: bool = False,
    accumulate: bool = False,
) -> None:
    """See :func:`dorylus.backends.native.spmm`."""
    for v, e in rows_of(indptr, begin, end):
        neighbours = indices[e]
        weight = np.ones(len(neighbours)) if values is None else f64(values[e])
        if col_scale is not None:
            weight = weight * col_scale[neighbours]
        total = weight @ f64(x[neighbours])
        if row_scale is not None:
            total = total * row_scale[v]
        if mean and len(neighbours):
            total = total / len(neighbours)
        write(out, v, total, accumulate)


def spmm_max(indptr: Offsets, indices: Ints, x: Floats | Bf16, out: Floats, ties: Floats, begin: int, end: int) -> None:
    """See :func:`dorylus.backends.native.spmm_max`."""
    for v, e in rows_of(indptr, begin, end):
        out[v], ties[v] = maximum(f64(x[indices[e]]))


def spmm_max_grad(
    indptr_t: Offsets,
    indices_t: Ints,
    x: Floats | Bf16,
    out: Floats,
    dout_per_tie: Floats,
    dx: Floats,
    begin: int,
    end: int,
    *,
    accumulate: bool = False,
) -> None:
    """See :func:`dorylus.backends.native.spmm_max_grad`."""
    for u, e in rows_of(indptr_t, begin, end):
        destinations = indices_t[e]
        attained = f64(x[u]) == f64(out[destinations])
        write(dx, u, np.where(attained, f64(dout_per_tie[destinations]), 0.0).sum(axis=0), accumulate)


def spmm_outer(indptr: Offsets, indices: Ints, values: Floats, dz: Floats, dw: Floats, begin: int, end: int) -> None:
    """See :func:`dorylus.backends.native.spmm_outer`."""
    for v, e in rows_of(indptr, begin, end):
        np.add.at(dw, indices[e], values[e][:, None] * dz[v])


def gather_limit(indptr: Offsets, indices: Ints, x: Floats, begin: int, end: int) -> float:
    """See :func:`dorylus.backends.native.gather_limit`."""
    return float(f64(x[indices[indptr[begin] : indptr[end]]]).sum())


def gather_rows(x: Floats | Bf16, index: Ints, out: Floats) -> None:
    """See :func:`dorylus.backends.native.gather_rows`."""
    out[: len(index)] = f64(x[index])


def scatter_add_rows(src: Floats, index: Ints, out: Floats) -> None:
    """See :func:`dorylus.backends.native.scatter_add_rows`."""
    for k, row in enumerate(index):
        out[row] += src[k]


def to_bf16(x: Floats, out: Bf16, begin: int, end: int) -> None:
    """See :func:`dorylus.backends.native.to_bf16`."""
    out[begin:end] = nearest_bf16(x[begin:end])


def from_bf16(x: Bf16, out: Floats, begin: int, end: int) -> None:
    """See :func:`dorylus.backends.native.from_bf16`."""
    out[begin:end] = f64(x[begin:end])
