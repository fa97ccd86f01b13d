"""Input files: decompressed, memory-mapped or read in parts, without filling the page cache, checked for changes."""

import bz2
import gzip
import io
import mmap
import os
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from dorylus.errors import ConfigError, DataError, given
from dorylus.ingest.readers.arrow import pyarrow
from dorylus.process_memory import resident_bytes
from dorylus.units import format_bytes

DROP_BYTES = 8 << 20


class UnchangedFile:
    """The size, modification time and inode of a file when it was opened."""

    def __init__(self, path: Path) -> None:
        self._path, self._before = path, _state(path.stat())
        self.size = self._before[0]

    def check(self) -> None:
        """Refuse a file that has changed."""
        try:
            now = self._path.stat()
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            change = "it is not there any more" if gone else error.strerror or str(error)
        else:
            if _state(now) == self._before:
                return
            sizes = f"it has {now.st_size:,} bytes, and had {self.size:,}"
            change = sizes if now.st_size != self.size else "it was written to or replaced"
        raise DataError(f"{self._path} changed while it was read: {change}. Ingest it again when it is complete.")


def _state(stat: os.stat_result) -> tuple[int, int, int, int]:
    return stat.st_size, stat.st_mtime_ns, stat.st_dev, stat.st_ino


class PageCache:
    """Drops the pages of a file from the page cache behind a sequential reader."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._dropped = 0

    def behind(self, position: int) -> None:
        """Drop the pages before ``position`` if they are enough to be worth a system call."""
        if position - self._dropped >= DROP_BYTES:
            self.drop(position)

    def drop(self, position: int = 0) -> None:
        """Drop the pages before ``position``; 0: the whole file."""
        os.posix_fadvise(self._descriptor, 0, position, os.POSIX_FADV_DONTNEED)
        self._dropped = position

    def __enter__(self) -> "PageCache":
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()
        os.close(self._descriptor)


class MappedFile:
    """A memory-mapped file; pages that were read stay in memory until they are dropped."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.content = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        self._read = 0

    def at(self, position: int, keep: int = 0) -> None:
        """Drop all pages but the first ``keep`` bytes if reading has advanced far since the last drop."""
        if position - self._read >= DROP_BYTES:
            self.drop(keep)
            self._read = position

    def drop(self, keep: int = 0) -> None:
        """Drop all pages after the first ``keep`` bytes; they are read again on demand."""
        begin = -(-keep // mmap.PAGESIZE) * mmap.PAGESIZE
        if begin < len(self.content):
            # Unmap first: the page cache keeps pages that any process has mapped.
            self.content.madvise(mmap.MADV_DONTNEED, begin)
            os.posix_fadvise(self._descriptor, begin, 0, os.POSIX_FADV_DONTNEED)

    def disable_read_ahead(self) -> None:
        """Disable read-ahead, for access to a few pages."""
        self.content.madvise(mmap.MADV_RANDOM)

    def __enter__(self) -> "MappedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()
        os.close(self._descriptor)  # the mapping is freed with the last array that uses it


PIECE_BYTES = 1 << 22
COPIES = 2  # pyarrow copies its input


class UncachedFile:
    """A file object for pyarrow that drops pages from the page cache after reading them.

    While ``limit`` is a number of bytes, a read that would make the process exceed it is a ConfigError. ``largest`` is
    the size of the largest read.
    """

    def __init__(self, path: Path, limit: int | None = None) -> None:
        self._path, self.limit, self.largest = path, limit, 0
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.close = weakref.finalize(self, os.close, self._descriptor)
        self._position = 0
        # Many columns are many positions in a file: read-ahead at each of them would fill the page cache.
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return not self.close.alive

    def tell(self) -> int:
        """The position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position, relative to the beginning, the current position or the end."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: os.fstat(self._descriptor).st_size}
        self._position = origin[whence] + offset
        return self._position

    def read(self, size: int) -> bytearray:
        """The next ``size`` bytes, fewer only at the end of the file."""
        self._check(size)
        content, done = bytearray(size), 0
        with memoryview(content) as view:
            while done < size:
                got = os.preadv(self._descriptor, [view[done : done + PIECE_BYTES]], self._position)
                if not got:
                    break
                os.posix_fadvise(self._descriptor, self._position, got, os.POSIX_FADV_DONTNEED)
                done, self._position = done + got, self._position + got
        del content[done:]
        return content

    def _check(self, size: int) -> None:
        self.largest = max(self.largest, size)
        needed = 0 if self.limit is None else resident_bytes() + COPIES * size
        if self.limit is not None and needed > self.limit:
            raise ConfigError(
                f"the first row of {self._path} takes {format_bytes(needed)} or more of memory to read, but "
                f"{given('memory')} is {self.limit:,} bytes: Parquet is read by pages, one of every column at a time. "
                "Give more memory, or write the file with smaller pages or row groups."
            )


def _gzip(raw: IO[bytes]) -> Any:
    return gzip.GzipFile(fileobj=raw, mode="rb")


def _arrow(codec: str) -> Callable[[IO[bytes]], Any]:
    return lambda raw: pyarrow().CompressedInputStream(raw, codec)


DECOMPRESSORS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": _gzip,
    ".bz2": bz2.BZ2File,
    ".zst": _arrow("zstd"),
    ".lz4": _arrow("lz4"),
}
MAGIC_BYTES = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".zst": b"\x28\xb5\x2f\xfd", ".lz4": b"\x04\x22\x4d\x18"}
"""The first bytes of compressed files."""


def compression(path: Path) -> str:
    """The suffix of a compressed file, or an empty string."""
    suffix = path.suffix.lower()
    return suffix if suffix in DECOMPRESSORS else ""


class DecompressedFile:
    """A file whose content is decompressed as it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._raw: IO[bytes] = open(path, "rb", buffering=0)  # noqa: SIM115
        packed = compression(path)
        try:
            self._file: Any = DECOMPRESSORS[packed](self._raw) if packed else self._raw
        except BaseException:
            self._raw.close()
            raise

    @property
    def position(self) -> int:
        """The number of bytes read from the file on disk."""
        return self._raw.tell()

    def fill(self, room: memoryview) -> int:
        """Read until ``room`` is full or the file ends; returns the number of bytes."""
        filled = 0
        with self._naming_file():
            while filled < len(room):
                count = self._file.readinto(room[filled:])
                if not count:
                    break
                filled += count
        return filled

    def skip(self, count: int) -> None:
        """Skip the next ``count`` bytes."""
        room = memoryview(bytearray(min(count, 1 << 20)))
        while count > 0:
            count -= self.fill(room[: min(count, len(room))]) or count

    @contextmanager
    def _naming_file(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, zlib.error, ValueError) as error:
            if isinstance(error, io.UnsupportedOperation):
                raise
            raise DataError(f"cannot decompress or read {self._path}: {error}. {self._cure()}") from error

    def _cure(self) -> str:
        packed = compression(self._path)
        with open(self._path, "rb") as file:
            if not packed or file.read(4).startswith(MAGIC_BYTES[packed]):
                return "It is damaged or truncated: copy it again."
        return f"It does not begin like a {packed} file: if it is plain text, rename it to {self._path.stem}."

    def __enter__(self) -> "DecompressedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._raw.close()
