"""Columns of numbers from files that have rows: made int64 and float32, the first bad row named."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import DataError
from dorylus.graph.arrays import AnyArray
from dorylus.graph.ingest.readers.options import ReadOptions


def need_whole_numbers(path: Path, what: str, dtype: np.dtype[Any], ids_are: str = "Ends of edges") -> None:
    """Refuse a type that cannot be an id."""
    if dtype.kind not in "iu":
        raise DataError(
            f"{path}: {what} holds {dtype}. {ids_are} are whole numbers: convert them with .astype(np.int64)."
        )


def ids(path: Path, ends: AnyArray, first_row: int, options: ReadOptions) -> NDArray[np.int64]:
    """Ends as int64; the first that is out of bounds is named by its row."""
    position = options.first_outside(ends)
    if position is not None:
        cure = options.range_cure() if options.bounds[0] == 0 else "Ids are signed numbers of 64 bits."
        raise DataError(f"{path}, row {first_row + position:,}: vertex {ends[position]} is out of range. {cure}")
    return np.ascontiguousarray(ends, dtype=np.int64)


def weights(path: Path, values: AnyArray, first_row: int) -> NDArray[np.float32]:
    """Weights as float32; the first that is not finite is named by its row."""
    with np.errstate(over="ignore"):
        found = np.ascontiguousarray(values, dtype=np.float32)
    finite = np.isfinite(found)
    if not finite.all():
        position = int(np.flatnonzero(~finite)[0])
        raise DataError(
            f"{path}, row {first_row + position:,}: the weight is {values[position]}. Weights are finite numbers: drop "
            "the edge or give it one."
        )
    return found


def pick(path: Path, names: list[str], options: ReadOptions) -> tuple[int, ...]:
    """The positions of the columns of ends, and of the weight where there is one."""
    if options.columns is None:
        if len(names) in (2, 3):
            return tuple(range(len(names)))
        raise DataError(
            f"{path} has {len(names)} columns ({_listed(names)}). Say which are source and destination (and weight), "
            "as in columns=(0, 1) or by their names."
        )
    return tuple(_position(path, names, column) for column in options.columns)


def _position(path: Path, names: list[str], column: int | str) -> int:
    if isinstance(column, int) and column < len(names):
        return column
    if isinstance(column, str) and names.count(column) == 1:
        return names.index(column)
    twice = isinstance(column, str) and column in names
    raise DataError(
        f"{path} has {'two columns' if twice else 'no column'} {column!r}: its columns are {_listed(names)}. "
        "Give columns by name, or by position from 0."
    )


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:12])
    return f"{shown}, ..." if len(names) > 12 else shown or "none"
