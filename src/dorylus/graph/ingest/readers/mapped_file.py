"""A file mapped into memory, whose pages are given back as it is read."""

import mmap
import os
from pathlib import Path

from dorylus.graph.ingest.readers.edge_file import DROP_BYTES


class MappedFile:
    """The bytes of a file; what reads them leaves pages in memory until they are dropped."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.content = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        self._read = 0

    def at(self, position: int, keep: int = 0) -> None:
        """Drop all pages but the first ``keep`` bytes' when reading came far since they were dropped last."""
        if position - self._read >= DROP_BYTES:
            self.drop(keep)
            self._read = position

    def drop(self, keep: int = 0) -> None:
        """Give back the memory of all pages behind the first ``keep`` bytes; they are read again if need be."""
        begin = -(-keep // mmap.PAGESIZE) * mmap.PAGESIZE
        if begin < len(self.content):
            # Unmap first: the system keeps in its cache what any process has mapped.
            self.content.madvise(mmap.MADV_DONTNEED, begin)
            os.posix_fadvise(self._descriptor, begin, 0, os.POSIX_FADV_DONTNEED)

    def sparsely(self) -> None:
        """Read no page ahead from now on, as only a few are looked at."""
        self.content.madvise(mmap.MADV_RANDOM)

    def __enter__(self) -> "MappedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()
        os.close(self._descriptor)  # the mapping goes with the last array that is made of it
