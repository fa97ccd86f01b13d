"""What readers of edges give and numberings of vertices take: batches of edges, whose ends are numbers or names."""

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
    """String ids: token i is ``bytes[offsets[i]:offsets[i + 1]]``, UTF-8 where the input is."""

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
        places = np.repeat(self.offsets[positions] - offsets[:-1], lengths)
        places += np.arange(places.size)
        return Tokens(self.bytes[places], offsets)

    def to_list(self) -> list[str]:
        """The names, for few of them."""
        return [self.bytes[begin:end].tobytes().decode("utf-8", "replace") for begin, end in pairwise(self.offsets)]


PIECE_BYTES = 1 << 18  # decoded at a time: a text may take four bytes for each of its input
SHOWN_BYTES = 60


def first_bad(names: Tokens) -> int | None:
    """The position of the first name that is no text; None where all are."""
    if _all_texts(names):
        return None
    return next(position for position in range(len(names)) if _fault(_content(names, position)))


def refusal(names: Tokens, position: int, place: str) -> DataError:
    """What is wrong with a name that is no text, and where the input has it."""
    content = _content(names, position)
    name = repr(content[:SHOWN_BYTES].tobytes()) + ("..." if content.size > SHOWN_BYTES else "")
    return DataError(
        f"{place}: the name {name} {_fault(content)}. Names are texts: write the file as UTF-8 without NUL bytes."
    )


def _content(names: Tokens, position: int) -> AnyArray:
    return names.bytes[names.offsets[position] : names.offsets[position + 1]]


def _fault(content: AnyArray) -> str:
    if content.size and content.min() == 0:
        return "has a NUL byte"
    return "" if _decodes(content) else "is not UTF-8"


def _all_texts(block: Tokens) -> bool:
    begin, end = int(block.offsets[0]), int(block.offsets[-1])
    content = block.bytes[begin:end]
    if not content.size:
        return True
    if content.min() == 0:
        return False
    if content.max() < 0x80:
        return True
    # Two names may break one character between them: together they decode, but the second begins within it.
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
Place: TypeAlias = Callable[[int], str]


def counted(first: int, what: str = "number") -> Place:
    """The place of edges that are counted from ``first`` on: "number 7", "edges.npy, row 7"."""
    return lambda position: f"{what} {first + position:,}"


class EdgeBatch(NamedTuple):
    """Some edges, in the order of the input."""

    source: Ends
    destination: Ends
    weight: NDArray[np.float32] | None
    bytes_read: int
    """Of the input (as it lies on disk, packed where it is packed) up to the end of this batch: for progress."""
    place: Place
    """Where the input has the edge at a position of this batch; to be asked before the next batch is."""

    def told(self, position: int) -> str:
        """An edge as errors name it."""
        ends = f"{format_id(self.source[position])} -> {format_id(self.destination[position])}"
        return f"edge {ends} ({self.place(position)})"


def format_id(identity: object) -> str:
    """An id as errors show it."""
    return repr(identity) if isinstance(identity, str) else str(identity)


class ReaderMemory(NamedTuple):
    """What a source holds while it is read, beside its batches, for what ("to unpack ...") and how to need less."""

    num_bytes: int = 0
    purpose: str = ""
    cure: str = ""


class EdgeSource(Protocol):
    """Edges that can be read more than once, batch after batch."""

    total_bytes: int | None

    def __iter__(self) -> Iterator[EdgeBatch]: ...


MAX_EDGES = 1 << 20
"""A batch holds at most so many edges."""


class NoEdgesError(DataError):
    """A file that is as it should be, but holds no edge: as a part of many it is left out, alone it is refused."""


class EdgeFile(Protocol):
    """One file of edges, looked at but not read."""

    path: Path
    strings: bool
    """Whether ends are names, not numbers."""
    weighted: bool
    num_edges: int | None
    """How many there are, or about; None where that cannot be told before they are read."""

    def __iter__(self) -> Iterator[EdgeBatch]: ...


class Numbering(Protocol):
    """DenseIds numbers for the ids of vertices."""

    def ends(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The numbers of sources and destinations; an id that can have none is a DataError."""
        ...

    @property
    def num_vertices(self) -> int:
        """How many there are so far."""
        ...
