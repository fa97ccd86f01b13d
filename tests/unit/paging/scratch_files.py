"""Block files in memory that wait or fail on demand, and arrays over them."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import DataError
from dorylus.paging import PAGE, BlockFile, IoThreads, PagedArray

Bytes = NDArray[np.uint8]


class MemoryFile(BlockFile):
    """A file that is an array; records what was moved, and waits for ``gate`` before it writes."""

    def __init__(self, size: int) -> None:
        super().__init__(-1, "a file in memory", size, direct=True)
        self.content = np.zeros(size, np.uint8)
        self.reads: list[tuple[int, int]] = []
        self.writes: list[tuple[int, int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def read_into(self, target: Bytes, offset: int) -> None:
        """Fill the target."""
        self._check(target, offset)
        self.reads.append((offset, target.size))
        target[:] = self.content[offset : offset + target.size]

    def write_from(self, source: Bytes, offset: int) -> None:
        """Keep the source."""
        assert self.gate.wait(10)
        self._check(source, offset)
        self.writes.append((offset, source.size))
        self.content[offset : offset + source.size] = source

    def _check(self, part: Bytes, offset: int) -> None:
        assert offset % PAGE == part.size % PAGE == part.ctypes.data % PAGE == 0, "only whole pages are moved"


class FullDisk(MemoryFile):
    """A file that takes nothing."""

    def write_from(self, source: Bytes, offset: int) -> None:
        """Refuse."""
        raise DataError("cannot write to a full disk: Make room there.")


@contextmanager
def some_io_threads(deadline_s: float = 10.0) -> Iterator[IoThreads]:
    """Threads that are stopped at the end of the test."""
    io_threads = IoThreads(deadline_s)
    try:
        yield io_threads
    finally:
        io_threads.close()


def bytes_array(
    bounds: Sequence[int], io_threads: IoThreads, file: Any = None, *, read_only: bool = False
) -> tuple[PagedArray, Any]:
    """An array of bytes over a file in memory, and the file."""
    file = file or MemoryFile(-(-bounds[-1] // PAGE) * PAGE)
    return PagedArray((bounds[-1],), np.uint8, bounds, file, io_threads, read_only=read_only), file


def rewrite(array: PagedArray, bounds: Sequence[int], number: int, value: int) -> None:
    """Use a span: fill it and leave it."""
    array.acquire(number)
    array.array[bounds[number] : bounds[number + 1]] = value
    array.wrote(number)
    array.release(number, leave=True)


def values(array: PagedArray, bounds: Sequence[int], number: int) -> set[int]:
    """The content of a span for its user."""
    array.acquire(number)
    found = set(array.array[bounds[number] : bounds[number + 1]].tolist())
    array.release(number, leave=True)
    return found
