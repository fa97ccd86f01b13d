"""What every reader of one file gives, and reading that leaves nothing of the file in the page cache."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from dorylus.errors import DataError
from dorylus.graph.ingest.batches import EdgeBatch

MAX_EDGES = 1 << 20
"""A batch holds at most so many edges."""

BATCH_ROWS = MAX_EDGES // 2
"""So many rows of raw numbers are read at a time: they, their ends and the ends before are in memory at once."""

DROP_BYTES = 8 << 20


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


class Unchanged:
    """A file as it was when it was looked at: size, time of change, and which file it is."""

    def __init__(self, path: Path) -> None:
        self._path, self._before = path, _state(path.stat())
        self.size = self._before[0]

    def check(self) -> None:
        """Refuses a file that is no longer what it was."""
        try:
            now = self._path.stat()
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            found = "it is not there any more" if gone else error.strerror or str(error)
        else:
            if _state(now) == self._before:
                return
            sizes = f"it has {now.st_size:,} bytes, and had {self.size:,}"
            found = sizes if now.st_size != self.size else "it was written to or replaced"
        raise DataError(f"{self._path} changed while it was read: {found}. Ingest it again when it is complete.")


def _state(stat: os.stat_result) -> tuple[int, int, int, int]:
    return stat.st_size, stat.st_mtime_ns, stat.st_dev, stat.st_ino


class PageCache:
    """Gives back the memory that the system keeps of a file, behind whoever reads it once from front to end."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._dropped = 0

    def behind(self, position: int) -> None:
        """Drop what lies before ``position``, when that is worth a call."""
        if position - self._dropped >= DROP_BYTES:
            self.drop(position)

    def drop(self, position: int = 0) -> None:
        """Drop what lies before ``position``; 0: all of the file."""
        os.posix_fadvise(self._descriptor, 0, position, os.POSIX_FADV_DONTNEED)
        self._dropped = position

    def __enter__(self) -> "PageCache":
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()
        os.close(self._descriptor)
