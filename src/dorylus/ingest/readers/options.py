"""Options for reading edge files, the choice of columns, and checks of the numbers in them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import DataError, given, unknown_value
from dorylus.graph import MAX_VERTICES, AnyArray
from dorylus.ingest.batches import row_of

IDS = ("auto", "dense", "map", "strings")
Columns: TypeAlias = Sequence[int | str] | str

VERTICES = (0, 0)
"""The columns of a list of vertices, read as edges from each to itself; not allowed for edges."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options for reading edges; None means: detect."""

    columns: tuple[int | str, ...] | None = None
    delimiter: str | None = None
    header: bool | None = None
    comments: str = "#%"
    dtype: np.dtype[Any] | None = None
    ids: str = "auto"
    skip_lines: int = 0

    @classmethod
    def of(
        cls,
        *,
        columns: Columns | None = None,
        delimiter: str | None = None,
        header: bool | None = None,
        comments: str = "#%",
        dtype: Any = None,
        ids: str = "auto",
        skip_lines: int = 0,
    ) -> "ReadOptions":
        """The checked options."""
        if ids not in IDS:
            raise DataError(unknown_value("ids", ids, IDS))
        if not comments.isascii():
            raise DataError(f"comments={comments!r}: each mark that opens a comment is a character of ASCII.")
        return cls(
            columns=None if columns is None else _columns(columns),
            delimiter=None if delimiter is None else _delimiter(delimiter),
            header=header,
            comments=comments,
            dtype=None if dtype is None else _dtype(dtype),
            ids=ids,
            skip_lines=skip_lines,
        )

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest number of an end."""
        info = np.iinfo(np.int64)
        return (int(info.min), int(info.max)) if self.ids in ("map", "strings") else (0, MAX_VERTICES - 1)

    @property
    def ids_are(self) -> str:
        """The subject of error messages about ids."""
        return "Ids of vertices" if self.columns == VERTICES else "Ends of edges"

    def range_cure(self) -> str:
        """The cure for a number outside the bounds."""
        return (
            f"Numbers of vertices run from 0 to {MAX_VERTICES - 1:,}: for other ids, ingest the file with "
            f"{given('ids', 'map')}."
        )

    def first_outside(self, ends: AnyArray) -> int | None:
        """The position of the first number outside the bounds, if there is one."""
        low, high = self.bounds
        if not ends.size or (int(ends.min()) >= low and int(ends.max()) <= high):
            return None
        return int(np.flatnonzero((ends < low) | (ends > high))[0])


def _columns(columns: Columns) -> tuple[int | str, ...]:
    listed = columns.split(",") if isinstance(columns, str) else list(columns)
    chosen = tuple(int(c) if isinstance(c, str) and c.strip().isdecimal() else c for c in listed)
    if len(chosen) not in (2, 3) or not all(isinstance(c, str) or c >= 0 for c in chosen):
        raise DataError(
            f"{given('columns', columns)}, but an edge is made of two columns, source and destination, or three with a "
            f"weight. Give them by name or by position from 0, as in {given('columns', (0, 1))}."
        )
    if isinstance(chosen[0], int) and chosen[0] == chosen[1]:  # names are checked when the columns are known
        raise DataError(
            f"{given('columns', columns)} uses one column for both ends, so that every edge would be a self loop. "
            f"Give the columns of source and destination, as in {given('columns', (0, 1))}."
        )
    return chosen


def _delimiter(delimiter: str) -> str:
    delimiter = {"\\t": "\t", "tab": "\t", "comma": ","}.get(delimiter, delimiter)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter.isalnum() or delimiter in '\r\n\0"+-.':
        raise DataError(f"{given('delimiter', delimiter)}: one character separates fields, such as ',' or 'tab'.")
    return delimiter


def _dtype(dtype: Any) -> np.dtype[Any]:
    try:
        parsed = np.dtype(dtype)
    except TypeError as error:
        raise DataError(f"{given('dtype', dtype)} is not a type: raw binary edges are 'int32' or 'int64'.") from error
    if parsed.kind not in "iu" or parsed.itemsize not in (4, 8):
        raise DataError(
            f"{given('dtype', dtype)}, but raw binary edges are pairs of whole numbers: 'int32' or 'int64'."
        )
    return np.dtype(f"<{parsed.kind}{parsed.itemsize}") if parsed.byteorder == "=" else parsed


def check_integer_type(path: Path, what: str, dtype: np.dtype[Any], ids_are: str = "Ends of edges") -> None:
    """Refuse a dtype that cannot hold ids."""
    if dtype.kind not in "iu":
        raise DataError(
            f"{path}: {what} holds {dtype}. {ids_are} are whole numbers: convert them with .astype(np.int64)."
        )


def checked_ids(path: Path, ends: AnyArray, first_row: int, options: ReadOptions) -> NDArray[np.int64]:
    """Ends as int64; an error names the row of the first that is out of bounds."""
    position = options.first_outside(ends)
    if position is not None:
        cure = options.range_cure() if options.bounds[0] == 0 else "Ids are signed numbers of 64 bits."
        raise DataError(f"{row_of(path, first_row + position)}: vertex {ends[position]} is out of range. {cure}")
    return np.ascontiguousarray(ends, dtype=np.int64)


def checked_weights(path: Path, values: AnyArray, first_row: int) -> NDArray[np.float32]:
    """Weights as float32; an error names the row of the first that is not finite."""
    with np.errstate(over="ignore"):
        weight = np.ascontiguousarray(values, dtype=np.float32)
    finite = np.isfinite(weight)
    if not finite.all():
        position = int(np.flatnonzero(~finite)[0])
        raise DataError(
            f"{row_of(path, first_row + position)}: the weight is {values[position]}. Weights are finite numbers: drop "
            "the edge or give it one."
        )
    return weight


SOURCES = {"source", "src", "from", "fromnode"}
DESTINATIONS = {"destination", "dest", "dst", "target", "to", "tonode"}
NO_DATA = re.compile(r"__index_level_\d+__")
"""The name of the column in which pandas stores row numbers."""
PANDAS_INDEX = {"", "Unnamed: 0"}  # its column in a CSV file, and in the frame that pandas reads from that


def pick_columns(path: Path, names: list[str], options: ReadOptions) -> tuple[int, ...]:
    """The positions of the columns of source, destination and, if there is one, weight."""
    data = [position for position, name in enumerate(names) if not NO_DATA.fullmatch(name)]
    if options.columns is None:
        if has_pandas_index(names, options):
            data.remove(0)
            _check_source_is_named(path, names, options)
        if len(data) in (2, 3):
            return tuple(data)
        raise DataError(
            f"{path} has {len(data)} columns ({_listed(names)}). Say which are source and destination (and weight), "
            f"by position or name: ingest the file with, for example, {given('columns', (0, 1))}."
        )
    chosen = tuple(_position(path, names, data, column) for column in options.columns)
    if chosen[0] == chosen[1] and options.columns != VERTICES:
        raise DataError(
            f"{path}: {given('columns', options.columns)} uses {names[chosen[0]]!r} for both ends, so "
            "that every edge would be a self loop. Give the columns of source and destination."
        )
    return chosen


def has_pandas_index(names: list[str], options: ReadOptions) -> bool:
    """Whether the first of the names is that of pandas' index, before two or more names, without ``columns=``."""
    others = [name.strip() for name in names[1:]]
    is_headed = len(others) > 1 and all(name and name[0] not in "+-.0123456789" for name in others)
    return options.columns is None and options.header is not False and is_headed and names[0] in PANDAS_INDEX


def _check_source_is_named(path: Path, names: list[str], options: ReadOptions) -> None:
    """Refuse ",target,weight": the column without a name may be an index of sources."""
    first, second = _plain(names[1]), _plain(names[2])
    if first in DESTINATIONS and second not in SOURCES:
        raise DataError(
            f"{path}: the first column has no name, and the second is called {names[1]!r}. Ingest the file with "
            f"{given('columns', (0, 1))} if the first is the source; or name the columns of source and destination."
        )


def _plain(name: str) -> str:
    return re.sub(r"[ _-]?id$", "", name.strip().lower())


def are_columns_reversed(names: list[str], options: ReadOptions) -> bool:
    """Whether the first column is named like a destination and the second like a source, without ``columns=``."""
    if options.columns is not None or len(names) < 2:
        return False
    first, second = map(_plain, names[:2])
    return first in DESTINATIONS and second in SOURCES


def check_column_order(path: Path, names: list[str], options: ReadOptions) -> None:
    """Refuse columns whose names contradict their order as source and destination."""
    if are_columns_reversed(names, options):
        raise DataError(
            f"{path}: the first column is called {names[0]!r} and the second {names[1]!r}, but the first is read as "
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
    listed = ", ".join(repr(name) for name in names[:12])
    return f"{listed}, ..." if len(names) > 12 else listed or "none"
