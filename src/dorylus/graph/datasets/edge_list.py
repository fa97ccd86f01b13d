"""Text edge lists: an edge a line, two vertex numbers and perhaps a weight.

Numbers are separated by blanks, tabs or commas; what follows # or % is a comment. Files ending in .gz are unpacked.
"""

import gzip
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from dorylus.errors import DataError
from dorylus.graph.graph import Graph

COMMENTS = ("#", "%")
FORM = "two vertex numbers from 0 and, in every line or in none, a weight"


def load(
    path: str | PathLike[str],
    *,
    directed: bool = False,
    num_vertices: int | None = None,
    skip_lines: int = 0,
    name: str | None = None,
) -> Graph:
    """The graph of the edge list at ``path``; an undirected one (the default) gets the reverse of every edge."""
    path = Path(path)
    try:
        separator, weighted = _sniff(path, skip_lines)
        table = _parse(path, separator, weighted, skip_lines)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path} as text: {error}. Give a text file with an edge a line.") from error
    if table.size and min(table["source"].min(), table["destination"].min()) < 0:
        _refuse_first_bad_line(path, separator, weighted, skip_lines)
    return Graph.from_edges(
        table["source"],
        table["destination"],
        num_vertices,
        undirected=not directed,
        edge_weight=table["weight"] if weighted else None,
        name=name or path.name.split(".")[0],
    )


def _sniff(path: Path, skip_lines: int) -> tuple[str | None, bool]:
    """(separator, whether there are weights), from the first line that holds an edge."""
    with _open(path) as file:
        for number, line in enumerate(file):
            text = _without_comment(line)
            if number >= skip_lines and text:
                separator = "," if "," in text else None
                return separator, len(text.split(separator)) > 2
    raise DataError(f"{path} holds no edge. Each line gives {FORM}.")


def _parse(path: Path, separator: str | None, weighted: bool, skip_lines: int) -> Any:
    kind = np.dtype([("source", "i8"), ("destination", "i8"), *([("weight", "f4")] if weighted else [])])
    try:
        return np.loadtxt(path, dtype=kind, comments=COMMENTS, delimiter=separator, skiprows=skip_lines, ndmin=1)
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError):
            raise
        _refuse_first_bad_line(path, separator, weighted, skip_lines)
        raise DataError(f"cannot read {path}: {error}. Each line gives {FORM}.") from error


def _refuse_first_bad_line(path: Path, separator: str | None, weighted: bool, skip_lines: int) -> None:
    """Read line by line, slowly, to name the line that the fast reader stumbled over."""
    with _open(path) as file:
        for number, line in enumerate(file, start=1):
            text = _without_comment(line)
            if number > skip_lines and text and not _is_edge(text.split(separator), weighted):
                header = " Put # before a heading, or pass skip_lines." if number == 1 else ""
                raise DataError(f"{path}, line {number}: {text[:60]!r} is not an edge. Each line gives {FORM}.{header}")


def _is_edge(fields: list[str], weighted: bool) -> bool:
    try:
        ends = [int(field) for field in fields[:2]]
        for field in fields[2:]:
            float(field)
    except ValueError:
        return False
    return len(fields) == 2 + weighted and min(ends) >= 0


def _without_comment(line: str) -> str:
    for mark in COMMENTS:
        line = line.partition(mark)[0]
    return line.strip()


def _open(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8")
