"""Batches of edges, whose ends are numbers or names: the interface between readers, numberings and the sort."""

import codecs
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import DataError
from dorylus.graph import AnyArray


@dataclass(frozen=True, eq=False)
class Tokens:
    """String ids: token i is ``bytes[offsets[i]:offsets[i + 1]]``, in the encoding of the input."""

    bytes: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, position: int) -> str:
        begin, end = self.offsets[position : position + 2]
        return self.bytes[begin:end].tobytes().decode("utf-8", errors="replace")

    @classmethod
    def of(cls, names: Iterable[str]) -> "Tokens":
        """The tokens with these names."""
        encoded = [name.encode() for name in names]
        offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def take(self, positions: NDArray[np.int64]) -> "Tokens":
        """The tokens at positions, in that order."""
        lengths = np.diff(self.offsets)[positions]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        sources = np.repeat(self.offsets[positions] - offsets[:-1], lengths)
        sources += np.arange(sources.size)
        return Tokens(self.bytes[sources], offsets)

    def to_list(self) -> list[str]:
        """The names as strings; for small numbers of them."""
        return [self.bytes[begin:end].tobytes().decode("utf-8", "replace") for begin, end in pairwise(self.offsets)]


PIECE_BYTES = 1 << 18  # decoded at a time: a string may take four bytes per byte of its input
SHOWN_BYTES = 60


def first_invalid_name(names: Tokens) -> int | None:
    """The position of the first name that is not UTF-8 without NUL bytes; None if all are valid."""
    if _all_valid(names):
        return None
    return next(position for position in range(len(names)) if _fault(_content(names, position)))


def invalid_name_error(names: Tokens, position: int, location: str) -> DataError:
    """The error for an invalid name at a location of the input."""
    content = _content(names, position)
    name = repr(content[:SHOWN_BYTES].tobytes()) + ("..." if content.size > SHOWN_BYTES else "")
    return DataError(
        f"{location}: the name {name} {_fault(content)}. Names are texts: write the file as UTF-8 without NUL bytes."
    )


def _content(names: Tokens, position: int) -> AnyArray:
    return names.bytes[names.offsets[position] : names.offsets[position + 1]]


def _fault(content: AnyArray) -> str:
    if content.size and content.min() == 0:
        return "has a NUL byte"
    return "" if _decodes(content) else "is not UTF-8"


def _all_valid(block: Tokens) -> bool:
    begin, end = int(block.offsets[0]), int(block.offsets[-1])
    content = block.bytes[begin:end]
    if not content.size:
        return True
    if content.min() == 0:
        return False
    if content.max() < 0x80:
        return True
    # One character may be split between two names: together they decode, but the second begins inside it.
    starts = block.offsets[:-1][block.offsets[:-1] < block.offsets[1:]]
    return not ((block.bytes[starts] & 0xC0) == 0x80).any() and _decodes(content)


def _decodes(content: AnyArray) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for begin in range(0, content.size, PIECE_BYTES):
            decoder.decode(content[begin : begin + PIECE_BYTES].tobytes())
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


Ends: TypeAlias = NDArray[np.int64] | Tokens
Locate: TypeAlias = Callable[[int], str]


def locate_by_number(first: int) -> Locate:
    """Locates edges in memory by their number from ``first``: "number 7"."""
    return lambda position: f"number {first + position:,}"


def row_of(file: Path | str, row: int) -> str:
    """A row's place in a file or table, for error messages."""
    return f"{file}, row {row:,} (counted from 0)"


def locate_by_row(file: Path, first: int) -> Locate:
    """Locates edges by their rows from ``first``: "edges.npy, row 7 (counted from 0)"."""
    return lambda position: row_of(file, first + position)


class EdgeBatch(NamedTuple):
    """Some edges, in the order of the input."""

    source: Ends
    destination: Ends
    weight: NDArray[np.float32] | None
    bytes_read: int
    """Bytes of the input on disk up to the end of this batch, compressed if the file is; for progress."""
    locate: Locate
    """Where the edge at a position of this batch is in the input; valid until the next batch is read."""
    perhaps_header: bool = False
    """Whether the first edge may be the header of a text."""

    def describe(self, position: int) -> str:
        """An edge with its location, for error messages."""
        ends = f"{format_id(self.source[position])} -> {format_id(self.destination[position])}"
        return f"edge {ends} ({self.locate(position)})"


def format_id(vertex_id: object) -> str:
    """An id for error messages: names in quotes."""
    return repr(vertex_id) if isinstance(vertex_id, str) else str(vertex_id)


class ReaderMemory(NamedTuple):
    """Memory that a source needs beside its batches, its purpose ("to unpack ..."), and how to reduce it."""

    num_bytes: int = 0
    purpose: str = ""
    cure: str = ""


class EdgeSource(Protocol):
    """Edges that can be read more than once, batch after batch."""

    total_bytes: int | None

    def __iter__(self) -> Iterator[EdgeBatch]: ...


MAX_EDGES = 1 << 20
"""The most edges of a batch."""


class NoEdgesError(DataError):
    """A valid file without edges: skipped as one of several files, refused alone."""


class EdgeFile(Protocol):
    """One file of edges, inspected but not read."""

    path: Path
    strings: bool
    """Whether the ends of edges are names, not numbers."""
    weighted: bool
    num_edges: int | None
    """The exact or estimated number of edges; None if it is unknown before they are read."""

    def __iter__(self) -> Iterator[EdgeBatch]: ...


class Numbering(Protocol):
    """Assigns numbers from 0 to the ids of vertices."""

    def ends(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The numbers of sources and destinations; an invalid id is a DataError."""
        ...

    @property
    def num_vertices(self) -> int:
        """The number of vertices so far."""
        ...
