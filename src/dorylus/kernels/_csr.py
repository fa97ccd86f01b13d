"""Building and reshaping compressed sparse rows: counting sorts, linear in rows plus edges, stable."""

import numpy as np
import numpy.typing as npt

from dorylus.kernels import _native
from dorylus.kernels._arrays import Bools, Csr, Floats, Ints, Offsets


def csr_build(
    rows: npt.NDArray[np.integer],
    cols: npt.NDArray[np.integer],
    num_rows: int,
    num_cols: int,
    values: Floats | None = None,
) -> Csr:
    """The CSR of the edges (rows[e], cols[e]), columns ascending in each row, duplicates kept in their order.

    rows and cols are int32 or int64 [E]; an edge outside the matrix raises ValueError.
    """
    if rows.dtype != cols.dtype:
        rows, cols = rows.astype(np.int64), cols.astype(np.int64)
    return _native.csr_build(np.ascontiguousarray(rows), np.ascontiguousarray(cols), num_rows, num_cols, values)


def csr_transpose(
    indptr: Offsets,
    indices: Ints,
    num_cols: int,
    *,
    values: Floats | None = None,
    keep_rows: Bools | None = None,
) -> Csr:
    """The transpose, with only the rows kept (all, when None); columns of the result ascend."""
    return _native.csr_transpose(indptr, indices, num_cols, values, keep_rows)


def csr_permute(
    indptr: Offsets, indices: Ints, order: Ints, *, values: Floats | None = None, self_loops: bool = False
) -> Csr:
    """The square matrix renumbered so that new vertex i is old vertex order[i]; columns ascend.

    self_loops adds (v, v) with value 1 to the rows that have none; existing ones keep their value.
    """
    return _native.csr_permute(indptr, indices, order, values, self_loops)


def csr_coalesce(indptr: Offsets, indices: Ints, *, values: Floats | None = None) -> Csr:
    """The same matrix with every edge once, the values of duplicates summed. Columns must ascend in each row."""
    return _native.csr_coalesce(indptr, indices, values)


def csr_is_symmetric(indptr: Offsets, indices: Ints, *, values: Floats | None = None) -> bool:
    """Whether every edge has its twin with the same value. Columns must ascend in each row."""
    return _native.csr_is_symmetric(indptr, indices, values)
