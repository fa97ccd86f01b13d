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
