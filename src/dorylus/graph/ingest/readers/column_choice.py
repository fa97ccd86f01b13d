"""Which columns of a file are ends and weight: as told, or by their place; never against what they are called."""

import re
from pathlib import Path

from dorylus.errors import DataError
from dorylus.graph.ingest.readers.options import VERTICES, ReadOptions

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
            "by place or name: ingest the file with, for example, columns=(0, 1) (dorylus ingest --columns 0,1)."
        )
    chosen = tuple(_position(path, names, data, column) for column in options.columns)
    if chosen[0] == chosen[1] and options.columns != VERTICES:
        raise DataError(
            f"{path}: columns={','.join(map(str, options.columns))} takes {names[chosen[0]]!r} for both ends, so that "
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
            "the source. Ingest the file with columns= (dorylus ingest --columns): 1,0 if their names are right, 0,1 "
            "if their order is; or rename them."
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
