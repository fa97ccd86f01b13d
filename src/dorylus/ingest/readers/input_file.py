"""What every reader of one file gives, and reading that leaves nothing of the file in the page cache.

A file mapped into memory, whose pages are given back as it is read.

A file that is read here and there without growing the page cache, and at first within a memory limit.
"""

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

from dorylus.errors import ConfigError, DataError
from dorylus.ingest.readers.arrow import pyarrow
from dorylus.process_memory import resident_bytes
from dorylus.sizes import format_bytes

DROP_BYTES = 8 << 20


class UnchangedFile:
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


def _gzip(raw: IO[bytes]) -> Any:
    return gzip.GzipFile(fileobj=raw, mode="rb")


def _arrow(codec: str) -> Callable[[IO[bytes]], Any]:
    return lambda raw: pyarrow().CompressedInputStream(raw, codec)


UNPACK: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": _gzip,
    ".bz2": bz2.BZ2File,
    ".zst": _arrow("zstd"),
    ".lz4": _arrow("lz4"),
}
BEGINS = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".zst": b"\x28\xb5\x2f\xfd", ".lz4": b"\x04\x22\x4d\x18"}
"""The first bytes of a file that is packed."""


def packing(path: Path) -> str:
    """The suffix that says how a file is packed, or nothing."""
    suffix = path.suffix.lower()
    return suffix if suffix in UNPACK else ""


class UnpackedFile:
    """A file's content as if it were not packed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._raw: IO[bytes] = open(path, "rb", buffering=0)  # noqa: SIM115
        packed = packing(path)
        try:
            self._file: Any = UNPACK[packed](self._raw) if packed else self._raw
        except BaseException:
            self._raw.close()
            raise

    @property
    def position(self) -> int:
        """How many bytes of the file on disk were read."""
        return self._raw.tell()

    def fill(self, room: memoryview) -> int:
        """Read until ``room`` is full or the file ends; how many bytes there are now."""
        filled = 0
        with self._damage_named():
            while filled < len(room):
                count = self._file.readinto(room[filled:])
                if not count:
                    break
                filled += count
        return filled

    def skip(self, count: int) -> None:
        """Pass over the next ``count`` bytes."""
        room = memoryview(bytearray(min(count, 1 << 20)))
        while count > 0:
            count -= self.fill(room[: min(count, len(room))]) or count

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, zlib.error, ValueError) as error:
            if isinstance(error, io.UnsupportedOperation):
                raise
            raise DataError(f"cannot unpack or read {self._path}: {error}. {self._cure()}") from error

    def _cure(self) -> str:
        packed = packing(self._path)
        with open(self._path, "rb") as file:
            if not packed or file.read(4).startswith(BEGINS[packed]):
                return "It is damaged or cut short: copy it whole."
        return f"It does not begin as {packed} does: if it is plain text, rename it to {self._path.stem}."

    def __enter__(self) -> "UnpackedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._raw.close()
