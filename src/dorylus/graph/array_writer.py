"""Arrays written to disk block by block, with checksums, in one small buffer and without growing the page cache.

Files are opened with O_DIRECT where the file system supports it. Otherwise written pages are flushed and dropped from
the page cache.
"""

import errno
import mmap
import os
from pathlib import Path
from typing import Any, Self

import numpy as np

from dorylus.backends import crc32, crc32_blocks
from dorylus.graph.arrays import AnyArray

BUFFER_BYTES = 1 << 22
SECTOR_BYTES = 4096
CHECKED_BYTES = 1 << 16  # size of a block that has its own checksum
_DIRECT = getattr(os, "O_DIRECT", 0)


class FileWriter:
    """A new file that is written sequentially; it is complete and flushed to disk after ``close``."""

    def __init__(self, path: Path) -> None:
        self._file, self._direct = _create(path)
        self._buffer = mmap.mmap(-1, BUFFER_BYTES)  # aligned to a page, which O_DIRECT requires
        self._filled = self._written = 0

    def write(self, raw: memoryview) -> None:
        """Append bytes."""
        begin = 0
        while begin < len(raw):
            end = min(begin + BUFFER_BYTES - self._filled, len(raw))
            self._buffer[self._filled : self._filled + end - begin] = raw[begin:end]
            self._filled += end - begin
            begin = end
            if self._filled == BUFFER_BYTES:
                self._flush(BUFFER_BYTES)

    def close(self) -> None:
        """Write the rest of the buffer, flush the file to disk, and close it."""
        try:
            size = self._written + self._filled
            if self._filled:
                self._flush(-(-self._filled // SECTOR_BYTES) * SECTOR_BYTES)
            os.ftruncate(self._file, size)
            os.fsync(self._file)
            self._drop()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without writing the rest of the buffer."""
        if self._file >= 0:
            os.close(self._file)
            self._buffer.close()
        self._file = -1

    def _flush(self, size: int) -> None:
        with memoryview(self._buffer) as whole:
            done = 0
            while done < size:
                done += self._put(whole, done, size)
        self._written += size
        self._filled = 0
        if not self._direct:
            os.fdatasync(self._file)  # only clean pages can be dropped
            self._drop()

    def _put(self, whole: memoryview, begin: int, end: int) -> int:
        try:
            with whole[begin:end] as rest:
                count = os.pwrite(self._file, rest, self._written + begin)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._direct:
                raise
            count = 0  # the file system accepts the flag but refuses the write
        if not count or (self._direct and count % SECTOR_BYTES):
            self._leave_direct()
        return count

    def _leave_direct(self) -> None:
        import fcntl

        if not self._direct:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._direct = False
        fcntl.fcntl(self._file, fcntl.F_SETFL, fcntl.fcntl(self._file, fcntl.F_GETFL) & ~_DIRECT)

    def _drop(self) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)


class ArrayWriter:
    """Writes the rows of one array of a folder block by block; ``entry`` is its entry in the manifest.

    A context manager: on exit without an error, the file is complete and on disk.
    """

    def __init__(self, path: Path, dtype: Any, row_shape: tuple[int, ...] = ()) -> None:
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self._row_shape = row_shape
        self._crc = self.num_rows = 0
        self._sums: list[AnyArray] = []
        self._block = self._in_block = 0  # checksum and size of the block that is not full yet
        self._file = FileWriter(path)

    def write(self, block: AnyArray) -> None:
        """Append rows."""
        if block.shape[1:] != self._row_shape:
            raise ValueError(f"rows of shape {block.shape[1:]} for an array whose rows have shape {self._row_shape}")
        raw = raw_bytes(block, self.dtype)
        self._sum(raw)
        self._file.write(raw)
        self.num_rows += len(block)

    @property
    def entry(self) -> dict[str, Any]:
        """Type, shape, size and checksum."""
        shape = (self.num_rows, *self._row_shape)
        size = int(np.prod(shape, dtype=object)) * self.dtype.itemsize
        return {"dtype": self.dtype.str, "shape": list(shape), "bytes": size, "crc32": self._crc}

    @property
    def sums(self) -> AnyArray:
        """uint32, the checksum of every ``CHECKED_BYTES`` of the file."""
        last = [] if not self._in_block else [np.array([self._block], np.uint32)]
        return np.concatenate([np.zeros(0, np.uint32), *self._sums, *last])

    def _sum(self, raw: memoryview) -> None:
        """Update the checksums of the file and of its blocks."""
        self._crc = crc32(raw, self._crc)
        done = min(-self._in_block % CHECKED_BYTES, len(raw))  # the rest of the current block
        self._add_to_block(raw[:done])
        whole = done + (len(raw) - done) // CHECKED_BYTES * CHECKED_BYTES
        if done < whole:
            self._sums.append(crc32_blocks(raw[done:whole], CHECKED_BYTES))
        self._add_to_block(raw[whole:])

    def _add_to_block(self, raw: memoryview) -> None:
        self._block, self._in_block = crc32(raw, self._block), self._in_block + len(raw)
        if self._in_block == CHECKED_BYTES:
            self._sums.append(np.array([self._block], np.uint32))
            self._block = self._in_block = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *others: object) -> None:
        if kind is None:
            self._file.close()
        else:
            self._file.abandon()


def raw_bytes(block: AnyArray, dtype: np.dtype[Any]) -> memoryview:
    """The bytes of an array, little-endian."""
    return np.ascontiguousarray(block, dtype=dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


def _create(path: Path) -> tuple[int, bool]:
    """A new file's descriptor, and whether it bypasses the page cache."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    if _DIRECT:
        try:
            return os.open(path, flags | _DIRECT, 0o666), True
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            path.unlink(missing_ok=True)  # some file systems create the file before they refuse the flag
    return os.open(path, flags, 0o666), False
