"""Bytes kept on disk for a while, in a file without a name that vanishes with the process."""

import os
import tempfile
import weakref
from pathlib import Path
from typing import Self

SYNC_BYTES = 32 << 20
BUFFER_BYTES = 1 << 20


class ScratchFile:
    """A file that is written and read anywhere, of which the page cache keeps little; a full disk is an OSError."""

    def __init__(self, folder: Path) -> None:
        descriptor, name = tempfile.mkstemp(prefix=".dorylus-", dir=folder)
        os.unlink(name)  # at once: a process that is killed leaves nothing
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._appended = self._unsynced = 0
        self.close = weakref.finalize(self, os.close, descriptor)

    def append(self, data: bytes | memoryview) -> None:
        """Add bytes at the end of those that were added."""
        self._buffer += data
        if len(self._buffer) >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is still in memory."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self.write(rest, self._appended)
        self._appended += len(rest)

    def write(self, data: bytes | memoryview, begin: int) -> None:
        """Put bytes from ``begin`` on."""
        rest = memoryview(data)
        while rest:
            count = os.pwrite(self._descriptor, rest, begin)
            begin, rest = begin + count, rest[count:]
            self._unsynced += count
        if self._unsynced >= SYNC_BYTES:
            os.fdatasync(self._descriptor)  # pages that are not on disk yet cannot be dropped
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            self._unsynced = 0

    def read(self, begin: int, count: int) -> bytes:
        """``count`` bytes from ``begin`` on."""
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
