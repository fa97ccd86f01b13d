"""Building, reshaping and scanning compressed sparse rows: linear in rows plus edges, stable."""

import numpy as np
import numpy.typing as npt

from dorylus.backends.native import _native
from dorylus.backends.native.types import Bools, Csr, Floats, Ints, Levels, Offsets


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


def csr_select(
    indptr: Offsets,
    indices: Ints,
    rows: Ints,
    columns: Ints,
    num_columns: int,
    *,
    values: Floats | None = None,
    self_loops: bool | Bools = False,
) -> Csr:
    """The matrix whose row r is old row rows[r], old column c renumbered columns[c] (-1: dropped); columns ascend.

    self_loops adds (r, r) with value 1 to rows that have none: to every such row, or to those marked in an array.
    """
    return _native.csr_select(indptr, indices, rows, columns, num_columns, values, self_loops)


def csr_select_transpose(
    indptr: Offsets,
    indices: Ints,
    rows: Ints,
    row_of: Ints,
    num_rows: int,
    *,
    values: Floats | None = None,
    self_loops: bool | Bools = False,
) -> Csr:
    """The transpose with chosen rows and columns: row row_of[c] is old column c, column p is old row rows[p].

    -1 leaves a column out of row_of, and a column empty in rows. Columns ascend; self_loops as in csr_select.
    """
    return _native.csr_select_transpose(indptr, indices, rows, row_of, num_rows, values, self_loops)


def csr_with_loops(indptr: Offsets, indices: Ints, *, values: Floats | None = None, first_row: int = 0) -> Csr:
    """Some rows of a square matrix, numbered from first_row on, each with a self loop, of value 1 where it had none.

    Columns must ascend in each row, and do so in the result.
    """
    return _native.csr_with_loops(indptr, indices, values, first_row)


def csr_loops(indptr: Offsets, indices: Ints, *, first_row: int = 0) -> Bools:
    """bool [rows]: which of some rows, numbered from first_row on, have a self loop. Columns must ascend."""
    found = np.empty(indptr.size - 1, np.bool_)
    _native.csr_loops(indptr, indices, first_row, found)
    return found


def csr_reach(indptr: Offsets, indices: Ints, levels: Levels, reached: Levels) -> None:
    """Raises reached[c] to levels[r] for every edge (r, c) of a row whose level is not negative."""
    _native.csr_reach(indptr, indices, levels, reached)


def csr_count(
    indptr: Offsets, indices: Ints, row_group: Ints, col_group: Ints, num_row_groups: int, num_col_groups: int
) -> Offsets:
    """int64 [num_row_groups, num_col_groups]: how many edges lead between groups of rows and columns (-1: in none)."""
    counts = _native.csr_count(indptr, indices, row_group, col_group, num_row_groups, num_col_groups)
    return counts.reshape(num_row_groups, num_col_groups)


def csr_coalesce(indptr: Offsets, indices: Ints, *, values: Floats | None = None) -> Csr:
    """The same matrix with every edge once, the values of duplicates summed. Columns must ascend in each row."""
    return _native.csr_coalesce(indptr, indices, values)


def csr_is_symmetric(indptr: Offsets, indices: Ints, *, values: Floats | None = None) -> bool:
    """Whether every edge has its twin with the same value. Columns must ascend in each row."""
    return _native.csr_is_symmetric(indptr, indices, values)
