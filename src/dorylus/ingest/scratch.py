"""Scratch files for bytes, edges and names: unlinked at once, so that they vanish with the process."""

import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np

from dorylus.backends import EdgeBlock
from dorylus.graph import FloatArray, IdArray
from dorylus.ingest.batches import Tokens

SYNC_BYTES = 32 << 20
BUFFER_BYTES = 1 << 20


class ScratchFile:
    """A file for random reads and writes that keeps the page cache small; a full disk is an OSError."""

    def __init__(self, folder: Path) -> None:
        descriptor, name = tempfile.mkstemp(prefix=".dorylus-", dir=folder)
        os.unlink(name)  # at once: a killed process leaves no file
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._appended = self._unsynced = 0
        self.close = weakref.finalize(self, os.close, descriptor)

    def append(self, data: bytes | memoryview) -> None:
        """Append bytes, buffered."""
        self._buffer += data
        if len(self._buffer) >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffer to the file."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self.write(rest, self._appended)
        self._appended += len(rest)

    def write(self, data: bytes | memoryview, begin: int) -> None:
        """Write bytes at offset ``begin``."""
        rest = memoryview(data)
        while rest:
            count = os.pwrite(self._descriptor, rest, begin)
            begin, rest = begin + count, rest[count:]
            self._unsynced += count
        if self._unsynced >= SYNC_BYTES:
            os.fdatasync(self._descriptor)  # dirty pages cannot be dropped
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            self._unsynced = 0

    def read(self, begin: int, count: int) -> bytes:
        """Read ``count`` bytes at offset ``begin``."""
        first, parts = begin, []
        while count > 0:
            part = os.pread(self._descriptor, count, begin)
            if not part:
                raise OSError(f"a scratch file ended {count:,} bytes early")
            parts.append(part)
            begin, count = begin + len(part), count - len(part)
        os.posix_fadvise(self._descriptor, first, begin - first, os.POSIX_FADV_DONTNEED)
        return b"".join(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EdgeScratch:
    """An edge sink that returns its edges in the order and blocks in which they were added, any number of times."""

    def __init__(self, folder: Path, *, weighted: bool) -> None:
        self._file = ScratchFile(folder)
        self._types = ("<i4", "<i4", "<f4") if weighted else ("<i4", "<i4")
        self._counts: list[int] = []

    @property
    def num_bytes(self) -> int:
        """The bytes of all edges on disk; flushes the buffer."""
        self._file.flush()
        return 4 * len(self._types) * self.num_edges

    @property
    def num_edges(self) -> int:
        """The number of edges added."""
        return sum(self._counts)

    def add(self, rows: IdArray, columns: IdArray, weights: FloatArray | None = None) -> None:
        """Add the edges (rows[e], columns[e]) with their weights, if the input has any."""
        for values in (rows, columns, weights):
            if values is not None:
                self._file.append(np.ascontiguousarray(values).view(np.uint8).data)
        self._counts.append(rows.size)

    def blocks(self) -> Iterator[EdgeBlock]:
        """All edges, block by block."""
        self._file.flush()
        begin = 0
        for count in self._counts:
            raw = self._file.read(begin, 4 * count * len(self._types))
            parts = [np.frombuffer(raw, kind, count, 4 * count * part) for part, kind in enumerate(self._types)]
            yield parts[0], parts[1], parts[2] if len(parts) == 3 else None
            begin += len(raw)

    def close(self) -> None:
        """Release the disk space."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


BLOCK_NAMES = 1 << 16
BLOCK_BYTES = 8 << 20


class NameScratch:
    """Names in the order in which they were added."""

    def __init__(self, folder: Path | None = None) -> None:
        folder = Path(tempfile.gettempdir()) if folder is None else folder
        self._bytes, self._ends = ScratchFile(folder), ScratchFile(folder)
        self._count = self._num_bytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def num_bytes(self) -> int:
        """The bytes of names and offsets on disk; flushes the buffers."""
        self._flush()
        return self._num_bytes + 8 * self._count

    def append(self, names: Tokens) -> None:
        """Append names."""
        if not len(names):
            return
        begin, end = int(names.offsets[0]), int(names.offsets[-1])
        self._bytes.append(names.bytes[begin:end].data)
        self._ends.append((names.offsets[1:] - begin + self._num_bytes).astype("<i8").view(np.uint8).data)
        self._num_bytes += end - begin
        self._count += len(names)

    def blocks(self) -> Iterator[Tokens]:
        """All names, block by block."""
        self._flush()
        begin = 0
        for first in range(0, self._count, BLOCK_NAMES):
            raw = self._ends.read(8 * first, 8 * min(BLOCK_NAMES, self._count - first))
            offsets = np.concatenate([[begin], np.frombuffer(raw, "<i8")]).astype(np.int64)
            yield from self._pieces(offsets)
            begin = int(offsets[-1])

    def close(self) -> None:
        """Release the disk space."""
        self._bytes.close()
        self._ends.close()

    def _flush(self) -> None:
        self._bytes.flush()
        self._ends.flush()

    def _pieces(self, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[Tokens]:
        """The names between offsets, in pieces of at most BLOCK_BYTES unless one name is longer."""
        first, last = 0, len(offsets) - 1
        while first < last:
            fitting = int(np.searchsorted(offsets, offsets[first] + BLOCK_BYTES, side="right")) - 1
            after = min(max(fitting, first + 1), last)
            begin, end = int(offsets[first]), int(offsets[after])
            content = np.frombuffer(self._bytes.read(begin, end - begin), np.uint8)
            yield Tokens(content, offsets[first : after + 1] - begin)
            first = after
