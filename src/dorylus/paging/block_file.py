"""Files moved page by page, past the page cache where the file system can do that.

Elsewhere the cache is told to forget what went through it.
"""

import errno
import os
import threading
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import DataError
from dorylus.paging.window import PAGE

Bytes = NDArray[np.uint8]
MOST = 1 << 26  # moved by one call


class BlockFile:
    """A file by its descriptor. Offsets, lengths and addresses are multiples of a page, but for the file's end."""

    _descriptor = -1  # none is open

    def __init__(self, descriptor: int, name: str, *, direct: bool) -> None:
        self._descriptor, self._name, self._direct = descriptor, name, direct

    def read_into(self, target: Bytes, offset: int) -> None:
        """Fill the target from an offset on; what lies behind the file's end is left as it is."""
        done = 0
        while done < target.size:
            count = os.preadv(self._descriptor, [target[done : done + MOST].data], offset + done)
            if count == 0:
                break
            self._forget(offset + done, count)
            done += count
            if count % PAGE:  # the file's end
                break

    def write_from(self, source: Bytes, offset: int) -> None:
        """Write all of the source at an offset."""
        done = 0
        while done < source.size:
            try:
                count = os.pwritev(self._descriptor, [source[done : done + MOST].data], offset + done)
            except OSError as error:
                raise DataError(f"cannot write to {self._name}: {error.strerror}. Make room there.") from error
            if not self._direct:
                os.fdatasync(self._descriptor)  # a dirty page cannot be forgotten
            self._forget(offset + done, count)
            done += count

    def close(self) -> None:
        """Close it; a scratch file's space is free again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()

    def _forget(self, offset: int, count: int) -> None:
        if not self._direct:
            os.posix_fadvise(self._descriptor, offset, count, os.POSIX_FADV_DONTNEED)


class ReadOnlyFile(BlockFile):
    """A file that is there already."""

    def __init__(self, path: str | PathLike[str]) -> None:
        descriptor, direct = _open(path, os.O_RDONLY)
        super().__init__(descriptor, os.fspath(path), direct=direct)


class ScratchFile(BlockFile):
    """A file without a name: however the process ends, its space is free again.

    The space is set aside, all of it, when something is written: what never leaves memory takes none.
    """

    def __init__(self, folder: str | PathLike[str], size: int) -> None:
        try:
            descriptor, direct = _open(folder, os.O_TMPFILE | os.O_RDWR)
        except OSError as error:
            raise DataError(
                f"no scratch file can be made in {os.fspath(folder)}: {error.strerror}. Name another folder as "
                "scratch_dir, on a disk of this machine."
            ) from error
        super().__init__(descriptor, f"a scratch file in {os.fspath(folder)}", direct=direct)
        self.size, self.set_aside = size, False
        self._lock = threading.Lock()

    def write_from(self, source: Bytes, offset: int) -> None:
        """Write all of the source at an offset."""
        with self._lock:
            if not self.set_aside:
                self._set_aside()
        super().write_from(source, offset)

    def grow(self, size: int) -> None:
        """Have at least this size from now on."""
        if size > self.size:
            self.size, self.set_aside = size, False

    def _set_aside(self) -> None:
        try:
            os.posix_fallocate(self._descriptor, 0, max(1, self.size))
        except OSError as error:
            os.ftruncate(self._descriptor, 0)  # some of it may have been had
            raise DataError(
                f"{self._name} cannot have {self.size / 2**30:.2f} GiB: {error.strerror}. Make room there, or name "
                "another folder as scratch_dir."
            ) from error
        self.set_aside = True


def _open(path: str | PathLike[str], flags: int) -> tuple[int, bool]:
    """The descriptor, and whether it goes past the page cache: tmpfs, for one, has nothing but the cache."""
    try:
        return os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC, 0o600), True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return os.open(path, flags | os.O_CLOEXEC, 0o600), False
