"""The reference's part for building and reshaping compressed sparse rows: rows as lists of (column, value)."""

from itertools import pairwise

import numpy as np

from dorylus.backends.native.types import Array, Bools, Csr, Floats, Ints, Levels, Offsets

SparseRow = list[tuple[int, float]]


def _lists(indptr: Offsets, indices: Ints, values: Floats | None) -> list[SparseRow]:
    """The rows of a CSR as lists of (column, value)."""
    weights = np.ones(len(indices), np.float32) if values is None else values
    entries = list(zip(indices.tolist(), weights.tolist(), strict=True))
    return [entries[first:last] for first, last in pairwise(indptr)]


def _from_lists(rows: list[SparseRow], weighted: bool) -> Csr:
    """The CSR of lists of (column, value); equal columns stay in their order."""
    entries = [entry for row in rows for entry in sorted(row, key=lambda entry: entry[0])]
    indptr = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
    indices = np.array([column for column, _ in entries], np.int32)
    return indptr, indices, np.array([value for _, value in entries], np.float32) if weighted else None


def csr_build(rows: Array, cols: Array, num_rows: int, num_cols: int, values: Floats | None = None) -> Csr:
    """See :func:`dorylus.backends.native.csr_build`."""
    lists: list[SparseRow] = [[] for _ in range(num_rows)]
    for e, (row, col) in enumerate(zip(rows.tolist(), cols.tolist(), strict=True)):
        if not (0 <= row < num_rows and 0 <= col < num_cols):
            raise ValueError(f"edge {e} is ({row}, {col}), outside {num_rows} rows and {num_cols} columns")
        lists[row].append((col, 1.0 if values is None else float(values[e])))
    return _from_lists(lists, values is not None)


def csr_transpose(
    indptr: Offsets, indices: Ints, num_cols: int, *, values: Floats | None = None, keep_rows: Bools | None = None
) -> Csr:
    """See :func:`dorylus.backends.native.csr_transpose`."""
    lists: list[SparseRow] = [[] for _ in range(num_cols)]
    for row, entries in enumerate(_lists(indptr, indices, values)):
        for col, value in entries:
            if keep_rows is None or keep_rows[row]:
                lists[col].append((row, value))
    return _from_lists(lists, values is not None)


def _add_loops(lists: list[SparseRow], self_loops: bool | Bools) -> None:
    for row, entries in enumerate(lists):
        marked = self_loops if isinstance(self_loops, bool) else self_loops[row]
        if marked and row not in [col for col, _ in entries]:
            entries.append((row, 1.0))


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
    """See :func:`dorylus.backends.native.csr_select`."""
    old_rows = _lists(indptr, indices, values)
    lists = [[(int(columns[c]), value) for c, value in old_rows[old] if columns[c] >= 0] for old in rows.tolist()]
    _add_loops(lists, self_loops)
    return _from_lists(lists, values is not None)


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
    """See :func:`dorylus.backends.native.csr_select_transpose`."""
    old_rows = _lists(indptr, indices, values)
    lists: list[SparseRow] = [[] for _ in range(num_rows)]
    for position, old in enumerate(rows.tolist()):
        for col, value in old_rows[old] if old >= 0 else []:
            if row_of[col] >= 0:
                lists[row_of[col]].append((position, value))
    kept = rows[:num_rows] >= 0
    _add_loops(lists, kept if self_loops is True else kept & self_loops)
    return _from_lists(lists, values is not None)


def csr_with_loops(indptr: Offsets, indices: Ints, *, values: Floats | None = None, first_row: int = 0) -> Csr:
    """See :func:`dorylus.backends.native.csr_with_loops`."""
    lists = _lists(indptr, indices, values)
    for number, row in enumerate(lists, start=first_row):
        if number not in [column for column, _ in row]:
            row.append((number, 1.0))
            row.sort()
    return _from_lists(lists, values is not None)


def csr_loops(indptr: Offsets, indices: Ints, *, first_row: int = 0) -> Bools:
    """See :func:`dorylus.backends.native.csr_loops`."""
    lists = _lists(indptr, indices, None)
    return np.array([r in [c for c, _ in row] for r, row in enumerate(lists, start=first_row)], np.bool_)


def csr_reach(indptr: Offsets, indices: Ints, levels: Levels, reached: Levels) -> None:
    """See :func:`dorylus.backends.native.csr_reach`."""
    for level, entries in zip(levels.tolist(), _lists(indptr, indices, None), strict=True):
        for col, _ in entries if level >= 0 else []:
            reached[col] = max(reached[col], level)


def csr_count(
    indptr: Offsets, indices: Ints, row_group: Ints, col_group: Ints, num_row_groups: int, num_col_groups: int
) -> Offsets:
    """See :func:`dorylus.backends.native.csr_count`."""
    counts = np.zeros((num_row_groups, num_col_groups), np.int64)
    for group, entries in zip(row_group.tolist(), _lists(indptr, indices, None), strict=True):
        for col, _ in entries:
            if group >= 0 and col_group[col] >= 0:
                counts[group, col_group[col]] += 1
    return counts


def csr_coalesce(indptr: Offsets, indices: Ints, *, values: Floats | None = None) -> Csr:
    """See :func:`dorylus.backends.native.csr_coalesce`."""
    lists = []
    for entries in _lists(indptr, indices, values):
        merged: dict[int, float] = {}
        for col, value in entries:
            merged[col] = float(np.float32(merged[col]) + np.float32(value)) if col in merged else value
        lists.append(list(merged.items()))
    return _from_lists(lists, values is not None)


def csr_is_symmetric(indptr: Offsets, indices: Ints, *, values: Floats | None = None) -> bool:
    """See :func:`dorylus.backends.native.csr_is_symmetric`."""
    if len(indices) and indices.max() >= len(indptr) - 1:
        raise ValueError("a column lies outside the square matrix")
    mine = _from_lists(_lists(indptr, indices, values), True)
    twin = csr_transpose(mine[0], mine[1], len(indptr) - 1, values=mine[2])
    return all(np.array_equal(a, b) for a, b in zip(mine, twin, strict=True) if a is not None and b is not None)
