"""The reference's part for the gather, its gradients, and whole rows."""

import numpy as np

from dorylus.backends.native.types import Bf16, Floats, Ints, Offsets
from dorylus.backends.reference.rows import f64, maximum, nearest_bf16, rows_of, write


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
