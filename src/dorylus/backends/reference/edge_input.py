"""The reference's part for reading edge lists: one line, one field, one id after another.

The reference's part for sorting edges: all of them at once, in memory.
"""

import math
import re
from collections.abc import Iterator
from itertools import pairwise
from os import PathLike
from typing import Self

import numpy as np

from dorylus.backends.native.edge_input import EdgeBlock, Names, TextEdges, TextFault, TextForm, WeightClash
from dorylus.backends.native.types import Array, Bytes, Floats, Ints, Offsets

WHOLE = re.compile(rb"[+-]?[0-9]+")
DECIMAL = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def edge_text(text: Bytes, form: TextForm, *, names: bool = False) -> TextEdges:
    """See :func:`dorylus.backends.native.edge_text`."""
    lines = text.tobytes().split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    begin, number, fault = 0, 0, None
    edges: list[tuple[bytes, bytes, float]] = []
    for line in lines:
        stripped = line.removesuffix(b"\r")
        content = _without_comment(stripped, form)
        what = _put(content, form, names, edges) if content else None
        if what is not None:
            fault = TextFault(what, begin, begin + len(stripped))
            break
        begin, number = begin + len(line) + 1, number + 1
    weight = np.array([edge[2] for edge in edges], np.float64).astype(np.float32)
    source, destination = _ends([edge[0] for edge in edges], names), _ends([edge[1] for edge in edges], names)
    return TextEdges(source, destination, None if form.weight is None else weight, number, fault)


def _without_comment(line: bytes, form: TextForm) -> bytes:
    before = (b" ", b"\t", (form.separator or " ").encode())
    for at, mark in enumerate(line):
        if mark in form.comments.encode() and (at == 0 or line[at - 1 : at] in before):
            return line[:at].strip(_blanks(form))
    return line.strip(_blanks(form))


def _blanks(form: TextForm) -> bytes:
    return b" " if form.separator == "\t" else b" \t"


def _put(content: bytes, form: TextForm, names: bool, edges: list[tuple[bytes, bytes, float]]) -> str | None:
    """Append the edge of a line, or say what is wrong with it."""
    fields = _fields(content, form)
    if fields is None:
        return "quotes"
    if len(fields) != form.num_fields:
        return "fields"
    ends = fields[form.source], fields[form.destination]
    what = ("empty" if b"" in ends else None) if names else _wrong(ends[0], form) or _wrong(ends[1], form)
    if what is not None:
        return what
    weight = 0.0
    if form.weight is not None:
        field = fields[form.weight]
        with np.errstate(over="ignore"):
            weight = float(np.float32(float(field))) if DECIMAL.fullmatch(field) else math.nan
        if not math.isfinite(weight):
            return "weight"
    edges.append((*ends, weight))
    return None


def _fields(content: bytes, form: TextForm) -> list[bytes] | None:
    """The fields of a line; None where quotes are not closed, or something follows them."""
    if form.separator is None:
        return re.split(rb"[ \t]+", content)
    separator = form.separator.encode()
    found = []
    while form.quotes and re.match(rb'[ \t]*"', content):
        whole = re.match(rb'[ \t]*"((?:[^"]|"")*)"[ \t]*(?:$|' + re.escape(separator) + rb")", content)
        if whole is None:
            return None
        found.append(whole[1].replace(b'""', b'"'))
        content = content[whole.end() :]
        if not whole[0].endswith(separator):
            return found
    first, more, rest = content.partition(separator)
    others = _fields(rest, form) if more else []
    return None if others is None else [*found, first.strip(_blanks(form)), *others]


def _wrong(field: bytes, form: TextForm) -> str | None:
    if not WHOLE.fullmatch(field):
        return "number"
    number = int(field)
    if not -(2**63) <= number < 2**63:
        return "overflow"
    return None if form.lowest <= number <= form.highest else "range"


def _ends(fields: list[bytes], names: bool) -> Offsets | Names:
    if not names:
        return np.array([int(field) for field in fields], np.int64)
    offsets = np.cumsum([0, *map(len, fields)], dtype=np.int64)
    return np.frombuffer(b"".join(fields), np.uint8), offsets


class ReferenceNumberIds:
    """See :class:`dorylus.backends.native.NumberIds`; a dictionary has no limit."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def pairs(self, source: Offsets, destination: Offsets, *, fixed: bool = False) -> tuple[Ints, Ints]:
        """See :meth:`dorylus.backends.native.NumberIds.pairs`."""
        found = [
            [self._numbers.get(end, -1) if fixed else self._numbers.setdefault(end, len(self._numbers)) for end in edge]
            for edge in zip(source.tolist(), destination.tolist(), strict=True)
        ]
        sources, destinations = np.array(found, np.int32).reshape(-1, 2).T
        return sources, destinations

    def ids(self, first: int, count: int) -> Offsets:
        """See :meth:`dorylus.backends.native.NumberIds.ids`."""
        return np.array(list(self._numbers)[first : first + count], np.int64)


class ReferenceNameIds:
    """See :class:`dorylus.backends.native.NameIds`; a dictionary keeps the names whole."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def pairs(self, source: Names, destination: Names, *, fixed: bool = False) -> tuple[Ints, Ints, Names]:
        """See :meth:`dorylus.backends.native.NameIds.pairs`."""
        before = len(self._numbers)
        found = []
        for edge in zip(_listed(source), _listed(destination), strict=True):
            for name in edge if not fixed else ():
                self._numbers.setdefault(name, len(self._numbers))
            found.append([self._numbers.get(name, -1) for name in edge])
        sources, destinations = np.array(found, np.int32).reshape(-1, 2).T
        new = _ends(list(self._numbers)[before:], names=True)
        assert isinstance(new, tuple)
        return sources, destinations, new


def _listed(names: Names) -> list[bytes]:
    data, offsets = names
    return [data[begin:end].tobytes() for begin, end in pairwise(offsets)]


class ReferenceEdgeSort:
    """See :class:`dorylus.backends.native.EdgeSort`."""

    def __init__(
        self,
        folder: str | PathLike[str],
        memory_bytes: int,
        *,
        weighted: bool = False,
        undirected: bool = False,
        drop_self_loops: bool = False,
        coalesce: bool = True,
    ) -> None:
        self._weighted, self._undirected, self._coalesce = weighted, undirected, coalesce
        self._drop_self_loops = drop_self_loops
        self._edges: list[tuple[int, int, float]] = []

    def add(self, rows: Ints, columns: Ints, weights: Floats | None = None) -> None:
        """See :meth:`dorylus.backends.native.EdgeSort.add`."""
        for e, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
            weight = 0.0 if weights is None else float(weights[e])
            if row == column and self._drop_self_loops:
                continue
            self._edges.append((row, column, weight))
            if self._undirected and row != column:
                self._edges.append((column, row, weight))

    def sorted(self, memory_bytes: int, block_edges: int = 1 << 20) -> Iterator[EdgeBlock]:
        """See :meth:`dorylus.backends.native.EdgeSort.sorted`."""
        ordered = sorted(self._edges, key=lambda edge: edge[:2])
        if self._coalesce:
            ordered = _each_once(ordered)
        for begin in range(0, len(ordered), block_edges):
            rows, columns, weights = zip(*ordered[begin : begin + block_edges], strict=True)
            yield _ints(rows), _ints(columns), np.array(weights, np.float32) if self._weighted else None

    def close(self) -> None:
        """See :meth:`dorylus.backends.native.EdgeSort.close`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _each_once(ordered: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    kept: dict[tuple[int, int], float] = {}
    for row, column, weight in ordered:
        if kept.setdefault((row, column), weight) != weight:
            raise WeightClash(row, column, kept[row, column], weight)
    return [(row, column, weight) for (row, column), weight in kept.items()]


def _ints(numbers: tuple[int, ...]) -> Array:
    return np.array(numbers, np.int32)
