"""Array types by element, ids that are texts, and control over which pages of a memory-mapped array are in memory."""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import DataError

AnyArray: TypeAlias = NDArray[Any]
BoolArray: TypeAlias = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.float32]
HalfArray: TypeAlias = NDArray[np.float16]
IdArray: TypeAlias = NDArray[np.int32]
OffsetArray: TypeAlias = NDArray[np.int64]


TEXTS_AT_ONCE = 131_072


@dataclass(frozen=True, eq=False)
class TextIds:
    """Ids that are texts: that of v is ``content[offsets[v]:offsets[v + 1]]``, UTF-8."""

    offsets: NDArray[np.int64]
    content: NDArray[np.uint8]

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, vertices: Any) -> Any:
        """The id of a vertex, or a list of those of several (a slice, a mask or an array of numbers)."""
        if isinstance(vertices, int | np.integer):
            number = range(len(self))[vertices]
            return self.parts(number, number + 1)[1].tobytes().decode("utf-8", "replace")
        return [self[number] for number in np.arange(len(self))[vertices].tolist()]

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))

    def __repr__(self) -> str:
        return f"TextIds({len(self):,}: {', '.join(map(repr, self[:3]))}{', ...' if len(self) > 3 else ''})"

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
        # A store is not trusted: readers of the parts would read outside of them.
        if offsets[0] < 0 or offsets[-1] > self.content.size or (np.diff(offsets) < 0).any():
            raise DataError(f"the ids of vertices {begin:,} to {end:,} are damaged: copy or ingest the store again.")
        return offsets - offsets[0], np.array(self.content[offsets[0] : offsets[-1]], np.uint8)

    def _ranges(self) -> Iterator[tuple[int, int]]:
        size = self.offsets.size - 1
        return ((begin, min(size, begin + TEXTS_AT_ONCE)) for begin in range(0, size, TEXTS_AT_ONCE))

    def _longest(self, begin: int, end: int) -> int:
        """The most characters of one text: bytes that do not continue the character before."""
        offsets, content = self.parts(begin, end)
        before = np.concatenate([[0], np.cumsum((content & 0xC0) != 0x80)])
        return int(np.diff(before[offsets]).max())


VertexIds: TypeAlias = OffsetArray | TextIds
"""The ids that vertices have in the input."""

SMALL = 1 << 22  # bytes below which dropping pages is not worth a system call


def preload_pages(array: AnyArray) -> None:
    """Read a memory-mapped array sequentially: faster than page faults in arbitrary order."""
    if _mapped_file(array) is not None:
        array.reshape(-1)[:: mmap.PAGESIZE // array.itemsize].max(initial=0)


def drop_pages(array: AnyArray) -> None:
    """Drop the whole pages of a memory-mapped array from memory and from the page cache."""
    file = _mapped_file(array)
    if file is None or array.nbytes < SMALL:
        return
    start = array.ctypes.data - file.ctypes.data
    begin, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if array.nbytes == file.nbytes:
        end = len(file._mmap)  # type: ignore[attr-defined]
    if begin < end:
        file._mmap.madvise(mmap.MADV_DONTNEED, begin, end - begin)  # type: ignore[attr-defined]
        try:
            descriptor = os.open(file.filename, os.O_RDONLY)  # type: ignore[arg-type]
        except OSError:  # renamed or removed since: the kernel reclaims its pages when it needs them
            return
        try:
            os.posix_fadvise(descriptor, begin, end - begin, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _mapped_file(array: AnyArray | None) -> "np.memmap[tuple[int, ...], np.dtype[np.generic]] | None":
    """The memory map of the whole file that an array is a view of; None for other arrays."""
    mapped = None
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array.filename is not None and array.offset == 0:
            mapped = array
        array = array.base
    return mapped
