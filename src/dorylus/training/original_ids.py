"""What vertices were called in the input a store was made of: whole numbers or texts, read some vertices at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.graph import store

ROWS = 131_072  # looked at together


@dataclass(frozen=True, eq=False)
class NumberIds:
    """Ids that are whole numbers."""

    numbers: NDArray[np.int64]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an array of them."""
        return np.dtype(np.int64)

    def rows(self, begin: int, end: int) -> NDArray[Any]:
        """The ids of a range of vertices."""
        return np.array(self.numbers[begin:end], np.int64)


@dataclass(frozen=True, eq=False)
class TextIds:
    """Ids that are texts: that of v is ``content[offsets[v]:offsets[v + 1]]``, UTF-8."""

    offsets: NDArray[np.int64]
    content: NDArray[np.uint8]

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The type of an array of them, as wide as the longest."""
        return np.dtype(f"<U{max((self._longest(*bounds) for bounds in self._ranges()), default=1) or 1}")

    def rows(self, begin: int, end: int) -> NDArray[Any]:
        """The ids of a range of vertices."""
        offsets, content = self.parts(begin, end)
        data = content.tobytes()
        return np.array([data[first:last].decode() for first, last in pairwise(offsets.tolist())], self.dtype)

    def parts(self, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """The offsets, from 0 on, and the bytes of a range of vertices."""
        offsets = np.array(self.offsets[begin : end + 1], np.int64)
        return offsets - offsets[0], np.array(self.content[offsets[0] : offsets[-1]], np.uint8)

    def _ranges(self) -> Iterator[tuple[int, int]]:
        size = self.offsets.size - 1
        return ((begin, min(size, begin + ROWS)) for begin in range(0, size, ROWS))

    def _longest(self, begin: int, end: int) -> int:
        """The most characters of one text: bytes that do not go on with the character before."""
        offsets, content = self.parts(begin, end)
        before = np.concatenate([[0], np.cumsum((content & 0xC0) != 0x80)])
        return int(np.diff(before[offsets]).max())


Ids = NumberIds | TextIds


def original_ids(address: str | None) -> Ids | None:
    """The ids that a store keeps; None where there is no store, or vertices go by their numbers."""
    found = None if address is None else store.open_ids(address)
    if found is None:
        return None
    return TextIds(*found) if isinstance(found, tuple) else NumberIds(found)
