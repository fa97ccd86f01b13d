"""Reading edges from a block of text: a line an edge.

A line is cut into fields by runs of blanks and tabs, or by one character, around which blanks do not count. A comment
opens where a field could begin: at the start of a line, after a blank or after the separator. Lines without a field are
passed over.

Dense numbers for ids, given in the order in which ids first appear: source before destination, edge after edge.

Sorting more edges than memory holds, through a scratch file.
"""

import secrets
import tempfile
from collections.abc import Iterator
from os import PathLike
from typing import NamedTuple, Self, TypeAlias

from dorylus.backends.native import _native
from dorylus.backends.native.types import Bytes, Floats, Ints, Offsets

TEXT_FAULTS = (None, "fields", "quotes", "number", "overflow", "range", "empty", "weight")
"""What can be wrong with a line: the number of fields, quotes not closed, an end that is no whole number, one beyond 64
bits or beyond what is allowed, an empty name, a weight that is no finite number."""

Names: TypeAlias = tuple[Bytes, Offsets]
"""(bytes, offsets): name i is ``bytes[offsets[i]:offsets[i + 1]]``."""


class TextForm(NamedTuple):
    """The form of a text's lines: columns count from 0, every line has ``num_fields``."""

    source: int
    destination: int
    weight: int | None
    num_fields: int
    separator: str | None = None
    """One character of ASCII, or None for runs of blanks and tabs."""
    comments: str = "#%"
    lowest: int = -(2**63)
    """Numbers of vertices lie between ``lowest`` and ``highest``."""
    highest: int = 2**63 - 1

    @property
    def quotes(self) -> bool:
        """Whether a field may stand in double quotes, within which no separator counts and two quotes are one."""
        return self.separator in (",", ";")


class TextFault(NamedTuple):
    """The line that is no edge, by its place in the text, and one of ``TEXT_FAULTS``."""

    what: str
    begin: int
    end: int


class TextEdges(NamedTuple):
    """The edges of a text up to its end or its first fault; ``num_lines`` counts the lines before that."""

    source: Offsets | Names
    destination: Offsets | Names
    weight: Floats | None
    num_lines: int
    fault: TextFault | None


def edge_text(text: Bytes, form: TextForm, *, names: bool = False) -> TextEdges:
    """The edges in ``text``, uint8 [length], up to the first bad line: ends are int64 numbers, or names."""
    weight = -1 if form.weight is None else form.weight
    source, destination, weights, num_lines, fault, begin, end = _native.edge_text(
        text, form.source, form.destination, weight, form.num_fields, form.separator or "", form.quotes,
        form.comments, form.lowest, form.highest, names,
    )  # fmt: skip
    what = TEXT_FAULTS[fault]
    return TextEdges(source, destination, weights, num_lines, None if what is None else TextFault(what, begin, end))


class NumberIds:
    """Numbers for int64 ids."""

    def __init__(self, limit_bytes: int = 2**63 - 1) -> None:
        self._table = _native.NumberIds(limit_bytes)

    def __len__(self) -> int:
        return len(self._table)

    @staticmethod
    def bytes_for(num_ids: int) -> int:
        """The bytes of a table of ``num_ids``."""
        return _native.NumberIds.bytes_for(num_ids)

    def pairs(self, source: Offsets, destination: Offsets, *, fixed: bool = False) -> tuple[Ints, Ints]:
        """int32 [E] each: the numbers of both ends of every edge."""
        return self._table.pairs(source, destination, fixed)

    def ids(self, first: int, count: int) -> Offsets:
        """int64 [count]: the ids with the numbers from ``first`` on."""
        return self._table.ids(first, count)


class NameIds:
    """Numbers for names, identified by 128 bits of a keyed hash: the caller keeps the names themselves."""

    def __init__(self, limit_bytes: int = 2**63 - 1) -> None:
        self._table = _native.NameIds(limit_bytes, secrets.randbits(64), secrets.randbits(64))

    def __len__(self) -> int:
        return len(self._table)

    @staticmethod
    def bytes_for(num_ids: int) -> int:
        """The bytes of a table of ``num_ids``, without the names."""
        return _native.NameIds.bytes_for(num_ids)

    def pairs(
        self, source: Names, destination: Names, *, fixed: bool = False
    ) -> tuple[Ints, Ints, tuple[Bytes, Offsets]]:
        """The numbers of both ends of every edge, and the names that are new, in the order of their numbers."""
        sources, destinations, new_bytes, new_offsets = self._table.pairs(*source, *destination, fixed)
        return sources, destinations, (new_bytes, new_offsets)


EdgeBlock = tuple[Ints, Ints, Floats | None]
"""(rows, columns, weights or None)."""


class WeightClash(ValueError):  # noqa: N818
    """One edge came with two weights: ``row``, ``column``, ``first`` and ``second`` say which."""

    def __init__(self, row: int, column: int, first: float, second: float) -> None:
        super().__init__(f"edge ({row}, {column}) has two weights, {first:g} and {second:g}")
        self.row, self.column, self.first, self.second = row, column, first, second


class EdgeSort:
    """Takes edges in any order and returns them by ascending (row, column), within ``memory_bytes``.

    Sorted runs lie in one unnamed file in ``folder``, which bypasses the page cache and is freed with the process; a
    separate thread writes them. ``undirected`` adds the reverse of every edge (of a self loop none),
    ``drop_self_loops`` leaves those out, and ``coalesce`` returns every edge once; one with two weights is refused
    (:class:`WeightClash`). Without it, equal edges come in the order they were added in. A file that cannot be written
    is an OSError. ``close`` frees memory and disk space; the class is a context manager.
    """

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
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            self._native = _native.EdgeSort(
                file.fileno(), memory_bytes, weighted, undirected, drop_self_loops, coalesce
            )

    def add(self, rows: Ints, columns: Ints, weights: Floats | None = None) -> None:
        """Adds the edges (rows[e], columns[e]); int32 from 0. Weights are float32, given always or never."""
        self._native.add(rows, columns, weights)

    def sorted(self, memory_bytes: int, block_edges: int = 1 << 20) -> Iterator[EdgeBlock]:
        """The edges in order, in blocks, each merged while the one before is used; nothing can be added any more.

        The file's space is freed with each read, before its edges are in a block. Blocks, up to three at a time,
        come on top of ``memory_bytes``.
        """
        edges = self._native.sorted(memory_bytes, block_edges)
        try:
            while (block := edges.next()) is not None:
                yield block
        finally:
            edges.close()

    @property
    def spooled_bytes(self) -> int:
        """Bytes written to the file so far, all runs but the one that is being filled."""
        return self._native.spooled_bytes()

    def close(self) -> None:
        """Frees memory and file space."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
