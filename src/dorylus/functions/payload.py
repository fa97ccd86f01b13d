"""How rows travel: in float32, or in a narrower format where that is set; sparse rows are made dense on arrival.

The type of an array shows its format: rows are float32, so ``uint16`` holds bfloat16, and ``int8`` holds whole numbers
with one scale per row beside them. Only rows and their cotangents and gradients are narrowed: weights, labels and what
is summed never are. This file is shipped inside functions: numpy only.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dorylus.functions.program import ArrayRole, ProgramError, role

Arrays = Mapping[str, NDArray[Any]]
Form = tuple[np.dtype[Any], tuple[int, ...]]  # dtype and shape of an array in a message
Precision = Literal["float32", "bf16", "int8"]

PRECISIONS: Final = get_args(Precision)
ROW_ROLES: Final = frozenset({ArrayRole.ROWS, ArrayRole.COTANGENT, ArrayRole.OUTPUT, ArrayRole.INPUT_GRAD})
SCALE: Final = ".scale"
CSR: Final = (".indptr", ".indices", ".values")
MAX_DENSE_BYTES: Final = 4 << 30

_FLOAT32: Final = np.dtype(np.float32)


def narrow(arrays: Arrays, precision: str) -> dict[str, NDArray[Any]]:
    """The arrays in the format of a precision; those that are no matrix of rows are unchanged."""
    travels: dict[str, NDArray[Any]] = {}
    for name, array in arrays.items():
        if precision == "float32" or not _is_narrowed(name, array):
            travels[name] = array
        elif precision == "bf16":
            travels[name] = to_bf16(array)
        else:
            travels[name], travels[name + SCALE] = to_int8(array)
    return travels


def forms(name: str, shape: tuple[int, ...], precision: str) -> dict[str, Form]:
    """The names, types and shapes that :func:`narrow` gives a float32 array of this name and shape."""
    if precision == "float32" or not _is_matrix_of_rows(name, shape):
        return {name: (_FLOAT32, shape)}
    if precision == "bf16":
        return {name: (np.dtype(np.uint16), shape)}
    return {name: (np.dtype(np.int8), shape), name + SCALE: (_FLOAT32, shape[:1])}


def widen(
    arrays: Arrays,
    columns: Mapping[str, int] | None = None,
    shapes: Mapping[str, tuple[int | None, ...]] | None = None,
) -> dict[str, NDArray[Any]]:
    """The arrays as programs take them: rows dense and in float32. ``columns`` are the widths of the sparse ones.

    ``shapes`` are those of the program's inputs, None for the number of rows: rows of another shape are refused before
    memory is allocated for them.
    """
    if shapes is not None:
        _check_shapes(arrays, columns or {}, shapes)
    wide = {name: dense(arrays, name, width) for name, width in (columns or {}).items()}
    sparse = {name + part for name in wide for part in CSR}
    for name, array in arrays.items():
        if role(name) not in ROW_ROLES:
            wide[name] = array
        elif name not in sparse and not name.endswith(SCALE):
            wide[name] = _wide(arrays, name)
    return wide


def _check_shapes(arrays: Arrays, columns: Mapping[str, int], shapes: Mapping[str, tuple[int | None, ...]]) -> None:
    sparse = {name + part for name in columns for part in CSR}
    dense_rows = [name for name in arrays if role(name) in ROW_ROLES and name not in sparse]
    found: dict[str, tuple[int, ...]] = {name: (0, width) for name, width in columns.items()}
    found |= {name: arrays[name].shape for name in dense_rows if not name.endswith(SCALE)}
    for name, shape in found.items():
        if name not in shapes:
            raise ProgramError(f"{name} was sent, but the program takes no array of that name.")
        if len(shape) != len(shapes[name]) or shape[1:] != shapes[name][1:]:
            expected = ["rows", *shapes[name][1:]]
            raise ProgramError(f"{name} was sent with rows of {list(shape[1:])}, but the program takes {expected}.")


def _wide(arrays: Arrays, name: str) -> NDArray[Any]:
    rows = arrays[name]
    if rows.dtype == np.uint16:
        return from_bf16(rows)
    return from_int8(rows, _found(arrays, name + SCALE)) if rows.dtype == np.int8 else rows


def to_bf16(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The nearest bfloat16 of every entry, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def from_bf16(x: NDArray[np.uint16]) -> NDArray[np.float32]:
    """bfloat16 as float32: exact."""
    return (x.astype(np.uint32) << 16).view(np.float32)


def to_int8(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Whole numbers from -127 to 127 and, for each row, the value of 1: its largest entry / 127.

    A row with an entry that is not finite becomes all NaN, so that a diverged run is noticed.
    """
    scale = np.abs(x).max(axis=1).astype(np.float32) / np.float32(127)
    bad = ~np.isfinite(scale)
    worth = np.where(bad | (scale == 0), np.float32(1), scale)
    whole = np.rint(np.where(bad[:, None], np.float32(0), x) / worth[:, None])
    return whole.astype(np.int8), np.where(bad, np.float32(np.nan), scale)


def from_int8(x: NDArray[np.int8], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rows of whole numbers and their scales."""
    # Of a vector, or of more dimensions, numpy would make a row for each pair of a row and a scale.
    if x.ndim != 2 or scale.shape != x.shape[:1] or scale.dtype != np.float32:
        raise ProgramError(f"rows of {list(x.shape)} have scales of {list(scale.shape)}: each row has one.")
    return x.astype(np.float32) * scale[:, None]


def dense(arrays: Arrays, name: str, columns: int) -> NDArray[np.float32]:
    """Sparse rows (offsets from 0, columns, values) as a matrix; entries of the same place add up."""
    indptr, indices, values = (_found(arrays, name + part) for part in CSR)
    if not _is_csr(indptr, indices, values, columns):
        raise ProgramError(f"{name} is no matrix of {columns} columns: its offsets, columns and values do not fit.")
    num_rows = len(indptr) - 1
    if num_rows * columns * 4 > MAX_DENSE_BYTES:
        raise ProgramError(f"{name} would be {num_rows} x {columns} when dense: cut it into smaller parts.")
    out = np.zeros((num_rows, columns), np.float32)
    np.add.at(out, (np.repeat(np.arange(num_rows), np.diff(indptr)), indices), values)
    return out


def _is_csr(indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], columns: int) -> bool:
    return bool(
        indptr.ndim == indices.ndim == values.ndim == 1
        and indptr.dtype == np.int64
        and indices.dtype == np.int32
        and values.dtype == np.float32
        and len(indptr) > 0
        and indptr[0] == 0
        and indptr[-1] == len(indices) == len(values)
        and (indptr[1:] >= indptr[:-1]).all()  # not their differences, which may overflow
        and (len(indices) == 0 or (indices.min() >= 0 and indices.max() < columns))
    )


def _is_narrowed(name: str, array: NDArray[Any]) -> bool:
    return array.dtype == np.float32 and _is_matrix_of_rows(name, array.shape)


def _is_matrix_of_rows(name: str, shape: tuple[int, ...]) -> bool:
    # One column, an edge's weight or score, would only grow with a scale.
    return role(name) in ROW_ROLES and len(shape) == 2 and shape[1] > 1


def _found(arrays: Arrays, name: str) -> NDArray[Any]:
    if name not in arrays:
        raise ProgramError(f"the array {name} is missing: it travels together with the others of its name.")
    return arrays[name]
