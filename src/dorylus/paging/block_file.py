"""Files moved page by page, past the page cache where the file system can do that, each read checked.

Where there is no way past the cache, it is told to forget what went through it. A read gives as many bytes as the file
has there. Its checksum is compared when a part is first read, after any change of the file, and at every eighth read:
at each one it would cost more than two percent of an epoch (docs/decisions/0020-checked-reads.md).
"""

import errno
import fcntl
import os
import threading
from dataclasses import dataclass
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import DataError, WriteError, cannot_write
from dorylus.kernels import crc32
from dorylus.paging.block_sums import BlockSums
from dorylus.paging.file_state import FileState, changed
from dorylus.paging.window import Window, down, up

Bytes = NDArray[np.uint8]
MOST = 1 << 26  # moved by one call
EVERY = 8  # of so many moves of a part, one is compared with its checksum


@dataclass(slots=True)
class _Part:
    """A part of a file that is moved again and again. ``seen``: the file's ctime when its checksum was compared."""

    checksum: int | None = None
    reads: int = 0
    writes: int = 0
    seen: int = 0


class BlockFile:
    """A file by its descriptor. Offsets, lengths and addresses are multiples of a page, but for the file's end.

    ``size``: the bytes it has, or is to have. An array moves the same parts of its file again and again.
    """

    _descriptor = -1  # none is open

    def __init__(self, descriptor: int, name: str, size: int, *, direct: bool) -> None:
        self._descriptor, self.name, self.size, self._direct = descriptor, name, size, direct
        self._parts: dict[tuple[int, int], _Part] = {}  # by offset and length

    def read_into(self, target: Bytes, offset: int) -> None:
        """Fill the target from an offset on; what lies behind the file's end is left as it is."""
        count = min(target.size, self.size - offset)
        if count <= 0:
            return
        self._fill(target, count, offset)
        now = self._compare_state()  # after the read: the file was whole until then
        part = self._part(offset, count)
        if part.reads % EVERY == 0 or part.seen != now:
            self._compare(part, target[:count], offset)
            part.seen = now
        part.reads += 1

    def write_from(self, source: Bytes, offset: int) -> None:
        """Write all of the source at an offset."""
        done = 0
        while done < source.size:
            direct = self._direct
            try:
                count = os.pwritev(self._descriptor, [source[done : done + MOST].data], offset + done)
            except OSError as error:
                if direct and self._leave_direct(error):
                    continue
                raise WriteError(f"cannot write to {self.name}: {error.strerror}. Make room there.") from error
            if not count:
                raise WriteError(f"cannot write to {self.name}: it takes no more bytes. Make room there.")
            if not self._direct:
                os.fdatasync(self._descriptor)  # a dirty page cannot be forgotten
            self._forget(offset + done, count)
            done += count
        if source.size:
            part = self._part(offset, source.size)
            due = part.writes % EVERY == 0
            part.checksum, part.reads, part.writes = crc32(source) if due else None, 0 if due else 1, part.writes + 1

    def close(self) -> None:
        """Close it; a scratch file's space is free again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()

    def _fill(self, target: Bytes, count: int, offset: int) -> None:
        """Read exactly so many bytes."""
        done = 0
        while done < count:
            direct = self._direct
            try:
                got = os.preadv(self._descriptor, [target[done : done + MOST].data], offset + done)
            except OSError as error:
                if direct and self._leave_direct(error):
                    continue
                raise DataError(
                    f"cannot read {self.name} at byte {offset + done:,}: {error.strerror}. Check the disk it is on."
                ) from error
            if not got:
                self._compare_state()
                raise changed(self.name, f"ended at byte {offset + done:,}, {count - done:,} bytes too soon,")
            self._forget(offset + done, got)
            done += got

    def _part(self, offset: int, count: int) -> _Part:
        return self._parts.setdefault((offset, count), _Part())

    def _compare(self, part: _Part, found: Bytes, offset: int) -> None:
        """Refuse bytes that are not those of before."""
        checksum = crc32(found)
        if part.checksum is None:
            self._check_first(found, offset)
            part.checksum = checksum
        elif part.checksum != checksum:
            raise changed(self.name, f"gave other bytes from {offset:,} to {offset + found.size:,} than before")

    def _check_first(self, found: Bytes, offset: int) -> None:
        """Look at bytes that were never read before."""

    def _compare_state(self) -> int:
        """Refuse a file that is not what it was when it was opened; the time of its last change of any kind."""
        return 0

    def _leave_direct(self, error: OSError) -> bool:
        """Go through the page cache from now on, if it is that which was refused; whether to try again.

        Some file systems let a file be opened past the cache and then refuse to move anything; others refuse the rest
        of a move that was cut within a page.
        """
        if error.errno != errno.EINVAL:
            return False
        self._direct = False
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & ~os.O_DIRECT)
        return True

    def _forget(self, offset: int, count: int) -> None:
        if not self._direct:
            os.posix_fadvise(self._descriptor, offset, count, os.POSIX_FADV_DONTNEED)


class ReadOnlyFile(BlockFile):
    """A file that is there already, and has to stay as it is.

    ``state``: what it was like when the numbers that go with it were read; left out, as it is now. ``sums``: the
    checksums of its blocks, which every byte is compared with when it is first read.
    """

    def __init__(
        self, path: str | PathLike[str], state: FileState | None = None, sums: BlockSums | None = None
    ) -> None:
        descriptor, direct = _open(path, os.O_RDONLY)
        self._state, self._sums = FileState.of(descriptor), sums
        super().__init__(descriptor, os.fspath(path), self._state.size, direct=direct)
        if state is not None:
            state.compare(self._state, self.name)

    def _compare_state(self) -> int:
        now = FileState.of(self._descriptor)
        self._state.compare(now, self.name)
        return now.ctime_ns

    def _check_first(self, found: Bytes, offset: int) -> None:
        if self._sums is not None:
            self._sums.check(found, offset, self._more, self.name)

    def _more(self, begin: int, end: int) -> Bytes:
        """Other bytes of the file, which belong to the same block as some that were read."""
        first = down(begin)
        page = Window(up(end) - first).bytes
        self._fill(page, min(page.size, self.size - first), first)
        return page[begin - first : end - first]


class ScratchFile(BlockFile):
    """A file without a name: however the process ends, its space is free again.

    The space is set aside, all of it, when something is written: what never leaves memory takes none.
    """

    def __init__(self, folder: str | PathLike[str], size: int) -> None:
        try:
            descriptor, direct = _open(folder, os.O_TMPFILE | os.O_RDWR)
        except OSError as error:
            raise cannot_write(
                f"no scratch file can be made in {os.fspath(folder)}: {error.strerror}. Name another folder as "
                "scratch_dir, on a disk of this machine.",
                error,
            ) from error
        super().__init__(descriptor, f"a scratch file in {os.fspath(folder)}", size, direct=direct)
        self.set_aside = False
        self._lock = threading.Lock()

    def write_from(self, source: Bytes, offset: int) -> None:
        """Write all of the source at an offset."""
        with self._lock:
            if not self.set_aside:
                self._set_aside()
        super().write_from(source, offset)

    def use_again(self, size: int) -> None:
        """Hold something else from now on, of at least this size."""
        self._parts.clear()
        if size > self.size:
            self.size, self.set_aside = size, False

    def _set_aside(self) -> None:
        try:
            os.posix_fallocate(self._descriptor, 0, max(1, self.size))
        except OSError as error:
            os.ftruncate(self._descriptor, 0)  # some of it may have been had
            raise cannot_write(
                f"{self.name} cannot have {self.size / 2**30:.2f} GiB: {error.strerror}. Make room there, or name "
                "another folder as scratch_dir.",
                error,
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
