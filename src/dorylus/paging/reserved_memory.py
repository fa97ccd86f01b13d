"""Reserved address space for an array, of which only the pages that were written to take memory."""

import contextlib
import mmap
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

PAGE = mmap.PAGESIZE
_NORESERVE = 0x4000  # Linux: no swap space is set aside; the mmap module has no name for this before Python 3.12


class ReservedMemory:
    """Anonymous memory of a size that may exceed the machine's.

    ``huge``: in large pages, which make random access faster. The kernel frees nothing of a large page that is dropped
    in part: only memory that is dropped as a whole may use them.
    """

    def __init__(self, nbytes: int, *, huge: bool = False) -> None:
        size = max(PAGE, up(nbytes))
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        self.prefer_huge(huge)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)

    def prefer_huge(self, huge: bool) -> None:
        """Set whether pages that are written from now on are large ones."""
        with contextlib.suppress(OSError):  # the kernel has no large pages
            self._map.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """The memory as an array; what was never written, or was dropped, reads as zeros."""
        return np.ndarray(shape, np.dtype(dtype), buffer=self._map)

    def drop(self, begin: int, end: int) -> None:
        """Return the pages from one page boundary to another to the system."""
        if begin < end:
            self._map.madvise(mmap.MADV_DONTNEED, begin, end - begin)

    def drop_all(self) -> None:
        """Return all pages to the system."""
        self._map.madvise(mmap.MADV_DONTNEED)


def up(position: int) -> int:
    """The next page boundary at or after a position."""
    return -(-position // PAGE) * PAGE


def down(position: int) -> int:
    """The last page boundary at or before a position."""
    return position // PAGE * PAGE
