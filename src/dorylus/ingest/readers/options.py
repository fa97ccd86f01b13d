"""How files of edges are to be read: what a user may say about them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dorylus.errors import DataError, given, unknown_name
from dorylus.graph import MAX_VERTICES, AnyArray

IDS = ("auto", "dense", "map", "strings")
Columns: TypeAlias = Sequence[int | str] | str

VERTICES = (0, 0)
"""The columns of a list of vertices, read as edges from each to itself; nobody can ask for them of edges."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What is known about the input; None means: find out."""

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
        """The options, refused where one makes no sense."""
        if ids not in IDS:
            raise DataError(unknown_name("kind of ids", ids, IDS))
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
        """The least and the largest number an end may have."""
        info = np.iinfo(np.int64)
        return (int(info.min), int(info.max)) if self.ids in ("map", "strings") else (0, MAX_VERTICES - 1)

    @property
    def ids_are(self) -> str:
        """What ids are in this input, for errors."""
        return "Ids of vertices" if self.columns == VERTICES else "Ends of edges"

    def range_cure(self) -> str:
        """The sentence for a number outside the bounds."""
        return (
            f"Numbers of vertices run from 0 to {MAX_VERTICES - 1:,}: for other ids, ingest the file with "
            f"{given('ids', 'map')}."
        )

    def first_outside(self, ends: AnyArray) -> int | None:
        """The position of the first number that is out of bounds, if there is one."""
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
            "weight. "
            f"Give them by name or by position from 0, as in {given('columns', (0, 1))}."
        )
    if isinstance(chosen[0], int) and chosen[0] == chosen[1]:  # names are looked at where columns are known
        raise DataError(
            f"{given('columns', columns)} takes one column for both ends, so that every edge would lead to where it "
            "begins. "
            f"Give the columns of source and destination, as in {given('columns', (0, 1))}."
        )
    return chosen


def _delimiter(delimiter: str) -> str:
    delimiter = {"\\t": "\t", "tab": "\t", "comma": ","}.get(delimiter, delimiter)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter.isalnum() or delimiter in '\r\n\0"+-.':
        raise DataError(f"{given('delimiter', delimiter)}: fields are cut by one character, such as ',' or 'tab'.")
    return delimiter


def _dtype(dtype: Any) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise DataError(f"{given('dtype', dtype)} is no type: raw binary edges are 'int32' or 'int64'.") from error
    if found.kind not in "iu" or found.itemsize not in (4, 8):
        raise DataError(
            f"{given('dtype', dtype)}, but raw binary edges are pairs of whole numbers: 'int32' or 'int64'."
        )
    return np.dtype(f"<{found.kind}{found.itemsize}") if found.byteorder == "=" else found
