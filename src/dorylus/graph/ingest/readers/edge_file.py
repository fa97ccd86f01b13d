"""What every reader of one file gives, and reading that leaves nothing of the file in the page cache."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from dorylus.graph.ingest.batches import EdgeBatch

MAX_EDGES = 1 << 20
"""A batch holds at most so many edges."""

DROP_BYTES = 8 << 20


class EdgeFile(Protocol):
    """One file of edges, looked at but not read."""

    path: Path
    strings: bool
    """Whether ends are names, not numbers."""
    weighted: bool
    num_edges: int | None
    """How many there are, or about; None where that cannot be told before they are read."""

    def __iter__(self) -> Iterator[EdgeBatch]: ...


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
