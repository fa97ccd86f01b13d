"""How rows travel: in float32, or narrower where that was asked for; sparse ones as they are, made dense on arrival.

An array says by its type how it is written: rows are float32, so ``uint16`` are bfloat16 and ``int8`` are whole numbers
with one scale per row beside them. Only rows and their cotangents and gradients are narrowed: weights, labels and what
is summed never are. This file is shipped inside functions: numpy only.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from dorylus.functions.program import ProgramError, Role, role

Arrays = Mapping[str, NDArray[Any]]
Precision = Literal["float32", "bf16", "int8"]

PRECISIONS: Final = ("float32", "bf16", "int8")
ROW_ROLES: Final = frozenset({Role.ROWS, Role.COTANGENT, Role.OUTPUT, Role.INPUT_GRAD})
SCALE: Final = ".scale"
CSR: Final = (".indptr", ".indices", ".values")
MAX_DENSE_BYTES: Final = 4 << 30


def narrow(arrays: Arrays, precision: str) -> dict[str, NDArray[Any]]:
    """The same arrays as they travel in a precision; what is no matrix of rows stays as it is."""
    travels: dict[str, NDArray[Any]] = {}
    for name, array in arrays.items():
        if precision == "float32" or not _is_narrowed(name, array):
            travels[name] = array
        elif precision == "bf16":
            travels[name] = to_bf16(array)
        else:
            travels[name], travels[name + SCALE] = to_int8(array)
    return travels


def widen(arrays: Arrays, columns: Mapping[str, int] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays as programs know them: rows in float32 and dense. ``columns`` are the widths of the sparse ones."""
    wide = {name: dense(arrays, name, width) for name, width in (columns or {}).items()}
    sparse = {name + part for name in wide for part in CSR}
    for name, array in arrays.items():
        if role(name) not in ROW_ROLES:
            wide[name] = array
        elif name not in sparse and not name.endswith(SCALE):
            wide[name] = _wide(arrays, name)
    return wide


def _wide(arrays: Arrays, name: str) -> NDArray[Any]:
    rows = arrays[name]
    if rows.dtype == np.uint16:
        return from_bf16(rows)
    return from_int8(rows, _found(arrays, name + SCALE)) if rows.dtype == np.int8 else rows


def to_bf16(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The nearest bfloat16 of every entry, of two equally near the even one; what is not a number stays so."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def from_bf16(x: NDArray[np.uint16]) -> NDArray[np.float32]:
    """bfloat16 as float32: exact."""
    return (x.astype(np.uint32) << 16).view(np.float32)


def to_int8(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Whole numbers from -127 to 127 and, for each row, what one of them is worth: its largest entry / 127.

    A row with an entry that is not finite comes back as not a number, all of it: a run that diverged must be seen to.
    """
    scale = np.abs(x).max(axis=1).astype(np.float32) / np.float32(127)
    bad = ~np.isfinite(scale)
    worth = np.where(bad | (scale == 0), np.float32(1), scale)
    whole = np.rint(np.where(bad[:, None], np.float32(0), x) / worth[:, None])
    return whole.astype(np.int8), np.where(bad, np.float32(np.nan), scale)


def from_int8(x: NDArray[np.int8], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rows that whole numbers and their scales stand for."""
    if scale.shape != x.shape[:1] or scale.dtype != np.float32:
        raise ProgramError(f"rows of {list(x.shape)} have scales of {list(scale.shape)}: each row has one.")
    return x.astype(np.float32) * scale[:, None]


def dense(arrays: Arrays, name: str, columns: int) -> NDArray[np.float32]:
    """Sparse rows (offsets from 0, columns, values) as a matrix; entries of the same place add up."""
    indptr, indices, values = (_found(arrays, name + part) for part in CSR)
    num_rows = len(indptr) - 1
    if not _is_csr(indptr, indices, values, columns):
        raise ProgramError(f"{name} is no matrix of {columns} columns: its offsets, columns and values do not fit.")
    if num_rows * columns * 4 > MAX_DENSE_BYTES:
        raise ProgramError(f"{name} would be {num_rows} x {columns} when dense: cut it into smaller parts.")
    out = np.zeros((num_rows, columns), np.float32)
    np.add.at(out, (np.repeat(np.arange(num_rows), np.diff(indptr)), indices), values)
    return out


def _is_csr(indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], columns: int) -> bool:
    return bool(
        indptr.dtype == np.int64
        and indices.dtype == np.int32
        and values.dtype == np.float32
        and len(indptr) > 0
        and indptr[0] == 0
        and indptr[-1] == len(indices) == len(values)
        and (np.diff(indptr) >= 0).all()
        and (len(indices) == 0 or (indices.min() >= 0 and indices.max() < columns))
    )


def _is_narrowed(name: str, array: NDArray[Any]) -> bool:
    # One column is an edge's weight or score: with a scale of its own it would only grow.
    return role(name) in ROW_ROLES and array.dtype == np.float32 and array.ndim == 2 and array.shape[1] > 1


def _found(arrays: Arrays, name: str) -> NDArray[Any]:
    if name not in arrays:
        raise ProgramError(f"the array {name} is missing: it travels together with the others of its name.")
    return arrays[name]
