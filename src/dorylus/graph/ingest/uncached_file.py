"""A file that is read here and there without growing the page cache, and at first within a memory limit."""

import os
import weakref
from pathlib import Path

from dorylus.errors import ConfigError
from dorylus.graph.ingest.memory import resident_bytes
from dorylus.graph.sizes import format_bytes

PIECE_BYTES = 1 << 22
COPIES = 2  # pyarrow copies what it is given


class UncachedFile:
    """A file for reading, as pyarrow takes it, whose pages are dropped as soon as they were read.

    As long as ``limit`` is a number of bytes, what would bring the process beyond it is a ConfigError instead, and
    ``largest`` is the most that was read at once.
    """

    def __init__(self, path: Path, limit: int | None = None) -> None:
        self._path, self.limit, self.largest = path, limit, 0
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.close = weakref.finalize(self, os.close, self._descriptor)
        self._place = 0
        # Many columns are many places in a file: reading ahead at each of them would fill the page cache.
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self.close.alive

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Goes to a place, counted from the beginning, from here or from the end."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: os.fstat(self._descriptor).st_size}
        self._place = origin[whence] + offset
        return self._place

    def read(self, size: int) -> bytearray:
        """Up to ``size`` bytes from here on, fewer only at the end."""
        self._check(size)
        content, done = bytearray(size), 0
        with memoryview(content) as view:
            while done < size:
                got = os.preadv(self._descriptor, [view[done : done + PIECE_BYTES]], self._place)
                if not got:
                    break
                os.posix_fadvise(self._descriptor, self._place, got, os.POSIX_FADV_DONTNEED)
                done, self._place = done + got, self._place + got
        del content[done:]
        return content

    def _check(self, size: int) -> None:
        self.largest = max(self.largest, size)
        wanted = 0 if self.limit is None else resident_bytes() + COPIES * size
        if self.limit is not None and wanted > self.limit:
            raise ConfigError(
                f"the first row of {self._path} takes {format_bytes(wanted)} or more of memory to read, but memory="
                f"{self.limit:,} bytes: Parquet is read by pages, one of every column at a time. Give more memory, or "
                "write the file with smaller pages or row groups."
            )
