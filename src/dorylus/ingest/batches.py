"""What readers of edges give and numberings of vertices take: batches of edges, whose ends are numbers or names."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray


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
        ends = f"{shown(self.source[position])} -> {shown(self.destination[position])}"
        return f"edge {ends} ({self.place(position)})"


def shown(identity: object) -> str:
    """An id as errors show it."""
    return repr(identity) if isinstance(identity, str) else str(identity)


class Held(NamedTuple):
    """What a source holds while it is read, beside its batches, for what ("to unpack ...") and how to need less."""

    num_bytes: int = 0
    purpose: str = ""
    cure: str = ""


class EdgeSource(Protocol):
    """Edges that can be read more than once, batch after batch."""

    total_bytes: int | None

    def __iter__(self) -> Iterator[EdgeBatch]: ...


class Numbering(Protocol):
    """Dense numbers for the ids of vertices."""

    def ends(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The numbers of sources and destinations; an id that can have none is a DataError."""
        ...

    @property
    def num_vertices(self) -> int:
        """How many there are so far."""
        ...
