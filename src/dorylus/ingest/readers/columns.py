"""Columns of numbers from files that have rows: made int64 and float32, the first bad row named.

Which columns of a file are ends and weight: as told, or by their place; never against what they are called.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import DataError, given
from dorylus.graph import AnyArray
from dorylus.ingest.readers.options import VERTICES, ReadOptions


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


SOURCES = {"source", "src", "from", "fromnode"}
DESTINATIONS = {"destination", "dest", "dst", "target", "to", "tonode"}
NO_DATA = re.compile(r"__index_level_\d+__")
"""What pandas calls the column in which it keeps the numbers of rows."""


def pick(path: Path, names: list[str], options: ReadOptions) -> tuple[int, ...]:
    """The positions of the columns of ends, and of the weight where there is one."""
    data = [position for position, name in enumerate(names) if not NO_DATA.fullmatch(name)]
    if options.columns is None:
        if len(data) in (2, 3):
            return tuple(data)
        raise DataError(
            f"{path} has {len(data)} columns ({_listed(names)}). Say which are source and destination (and weight), "
            f"by place or name: ingest the file with, for example, {given('columns', (0, 1))}."
        )
    chosen = tuple(_position(path, names, data, column) for column in options.columns)
    if chosen[0] == chosen[1] and options.columns != VERTICES:
        raise DataError(
            f"{path}: {given('columns', options.columns)} takes {names[chosen[0]]!r} for both ends, so that "
            "every edge would lead to where it begins. Give the columns of source and destination."
        )
    return chosen


def are_reversed(names: list[str], options: ReadOptions) -> bool:
    """Whether the first column is called a destination and the second a source, and nobody said which is which."""
    if options.columns is not None or len(names) < 2:
        return False
    first, second = (re.sub(r"[ _-]?id$", "", name.strip().lower()) for name in names[:2])
    return first in DESTINATIONS and second in SOURCES


def refuse_reversed(path: Path, names: list[str], options: ReadOptions) -> None:
    """Refuses to take a first column for the source that is called a destination, beside one called a source."""
    if are_reversed(names, options):
        raise DataError(
            f"{path}: the first column is called {names[0]!r} and the second {names[1]!r}, but the first is taken for "
            f"the source. Ingest the file with {given('columns', (1, 0))} if their names are right, "
            f"{given('columns', (0, 1))} if their order is; or rename them."
        )


def _position(path: Path, names: list[str], data: list[int], column: int | str) -> int:
    if isinstance(column, int) and column < len(data):
        return data[column]
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
