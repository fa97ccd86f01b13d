"""Files read and written page by page, past the page cache where the file system allows it, each read checked.

Where it does not, the kernel is advised to drop what went through the cache. A read returns as many bytes as the file
has there, or fails. Its checksum is compared when a part is first read, after any change of the file, and at every
eighth read: at each one it would cost more than two percent of an epoch (docs/decisions/0020-checked-reads.md).

:class:`BlockSums` are the checksums of a file's blocks when it was written, :class:`FileState` is the file's identity,
size and times when it was opened.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import crc32, crc32_blocks
from dorylus.errors import DataError, WriteError, cannot_write, given
from dorylus.paging.reserved_memory import ReservedMemory, down, up

Bytes = NDArray[np.uint8]
Buffer = bytes | memoryview | Bytes


def damaged(name: str, wrong: tuple[int, int]) -> DataError:
    """The error for a file with a block that differs from what was written."""
    return DataError(
        f"{name} is damaged: its bytes from {wrong[0]:,} to {wrong[1]:,} are not those that were written, by their "
        "checksum. Copy or ingest the store again, and check the disk it is on."
    )


class BlockSums:
    """CRC-32 of every ``block_bytes`` of a file of so many bytes."""

    def __init__(self, sums: NDArray[np.uint32], block_bytes: int, size: int) -> None:
        self._sums, self._block, self._size = sums, block_bytes, size

    @property
    def block_bytes(self) -> int:
        """The bytes of a block; the last may have fewer."""
        return self._block

    def first_wrong(self, content: Buffer, offset: int) -> tuple[int, int] | None:
        """Where the first block that differs from what was written begins and ends; whole blocks, from an offset on."""
        first = offset // self._block
        sums = crc32_blocks(content, self._block)
        differ = np.flatnonzero(sums != self._sums[first : first + sums.size])
        return None if not differ.size else self._range(first + int(differ[0]))

    def check(self, content: Bytes, offset: int, more: Callable[[int, int], Bytes], name: str) -> None:
        """Refuse bytes, read from an offset on, that differ from what was written.

        ``more(begin, end)`` reads others, where a block begins before them or ends behind them.
        """
        end = offset + content.size
        begin = min(-(-offset // self._block) * self._block, end)  # of the first whole block
        stop = max(begin, end if end == self._size else end // self._block * self._block)
        wrong = self.first_wrong(content[begin - offset : stop - offset], begin) if begin < stop else None
        parts = {part // self._block for part, is_part in ((offset, offset < begin), (end - 1, stop < end)) if is_part}
        for block in parts:
            if not self._is_right(content, offset, block, more):
                wrong = wrong or self._range(block)
        if wrong is not None:
            raise damaged(name, wrong)

    def _is_right(self, content: Bytes, offset: int, block: int, more: Callable[[int, int], Bytes]) -> bool:
        """Whether a block of which some bytes were read is as it was written."""
        begin, end = self._range(block)
        near, far = max(begin, offset), min(end, offset + content.size)
        total = crc32(more(begin, near)) if begin < near else 0
        total = crc32(content[near - offset : far - offset], total)
        if far < end:
            total = crc32(more(far, end), total)
        return total == int(self._sums[block])

    def _range(self, block: int) -> tuple[int, int]:
        return block * self._block, min((block + 1) * self._block, self._size)


CURE = (
    "Numbers read of it since then are not those of the graph: restore the store (dorylus info STORE --verify "
    "compares it with its checksums), and continue from the last checkpoint."
)


class FileState(NamedTuple):
    """Which file it is, how long, and when it was last written to.

    ``ctime_ns`` cannot be set back. It also moves when the number of names (``links``), the owner or the permissions
    change (``owned``): where one of those explains it, the content has to be checked; where none does, the content may
    have been another in between.
    """

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    links: int
    owned: tuple[int, int, int]

    @classmethod
    def of(cls, file: int | str | os.PathLike[str]) -> "FileState":
        """The present state of a file, given by descriptor or path."""
        status = os.stat(file)
        owned = status.st_uid, status.st_gid, status.st_mode
        return cls(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_nlink, owned
        )

    def explains(self, now: "FileState") -> bool:
        """Whether something other than the content has changed, which also changes ``ctime_ns``."""
        return (now.links, now.owned) != (self.links, self.owned)

    def compare(self, now: "FileState", path: str) -> None:
        """Refuse a file that is another, or has changed since.

        Size and time decide: some file systems (FUSE) give a file another number each time it is opened.
        """
        if (now.size, now.mtime_ns) == (self.size, self.mtime_ns):
            return
        if now.size < self.size:
            what = f"was cut short from {self.size:,} to {now.size:,} bytes"
        elif now.size > self.size:
            what = f"grew from {self.size:,} to {now.size:,} bytes"
        elif (now.device, now.inode) != (self.device, self.inode):
            what = "was replaced by another file"
        else:
            what = "was written to"
        raise changed(path, what)


def changed(path: str, what: str) -> DataError:
    """The error for a file that is not what it was."""
    return DataError(f"{path} {what} while it was in use. {CURE}")


MOST = 1 << 26  # bytes read or written by one call
EVERY = 8  # one in so many reads of a part is compared with its checksum


@dataclass(slots=True)
class _FilePart:
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
        self._parts: dict[tuple[int, int], _FilePart] = {}  # by offset and length

    def read_into(self, target: Bytes, offset: int) -> None:
        """Fill the target from an offset on; bytes beyond the file's end are left unchanged."""
        count = min(target.size, self.size - offset)
        if count <= 0:
            return
        self._fill(target, count, offset)
        now = self._compare_state()  # after the read, to show that the file was whole until then
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
                raise WriteError(f"cannot write to {self.name}: no more bytes can be written. Make room there.")
            if not self._direct:
                os.fdatasync(self._descriptor)  # a dirty page cannot be dropped
            self._drop_from_cache(offset + done, count)
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
            self._drop_from_cache(offset + done, got)
            done += got

    def _part(self, offset: int, count: int) -> _FilePart:
        return self._parts.setdefault((offset, count), _FilePart())

    def _compare(self, part: _FilePart, content: Bytes, offset: int) -> None:
        """Refuse bytes that are not those of before."""
        checksum = crc32(content)
        if part.checksum is None:
            self._check_first(content, offset)
            part.checksum = checksum
        elif part.checksum != checksum:
            raise changed(self.name, f"gave other bytes from {offset:,} to {offset + content.size:,} than before")

    def _check_first(self, content: Bytes, offset: int) -> None:
        """Check bytes that were never read before."""

    def _compare_state(self) -> int:
        """Refuse a file that is not what it was when it was opened; the time of its last change of any kind."""
        return 0

    def _leave_direct(self, error: OSError) -> bool:
        """Go through the page cache from now on, if direct access was refused; returns whether to try again.

        Some file systems let a file be opened past the cache and then refuse to move anything; others refuse the rest
        of a move that was cut within a page.
        """
        if error.errno != errno.EINVAL:
            return False
        # The flag of the descriptor first: a thread that reads _direct as False must not be refused.
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & ~os.O_DIRECT)
        self._direct = False
        return True

    def _drop_from_cache(self, offset: int, count: int) -> None:
        if not self._direct:
            os.posix_fadvise(self._descriptor, offset, count, os.POSIX_FADV_DONTNEED)


class ReadOnlyFile(BlockFile):
    """An existing file, which must not change.

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

    def _check_first(self, content: Bytes, offset: int) -> None:
        if self._sums is not None:
            self._sums.check(content, offset, self._more, self.name)

    def _more(self, begin: int, end: int) -> Bytes:
        """Other bytes of the file, which belong to the same block as some that were read."""
        first = down(begin)
        page = ReservedMemory(up(end) - first).bytes
        self._fill(page, min(page.size, self.size - first), first)
        return page[begin - first : end - first]


class ScratchFile(BlockFile):
    """A file without a name: however the process ends, its space is free again.

    All of the space is reserved at the first write: an array that never leaves memory takes none.
    """

    def __init__(self, folder: str | PathLike[str], size: int) -> None:
        try:
            descriptor, direct = _open(folder, os.O_TMPFILE | os.O_RDWR)
        except OSError as error:
            raise cannot_write(
                f"no scratch file can be made in {os.fspath(folder)}: {error.strerror}. Name another folder as "
                f"{given('scratch_dir')}, on a disk of this machine.",
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
        """Reuse the file for another array, of at least this size."""
        self._parts.clear()
        if size > self.size:
            self.size, self.set_aside = size, False

    def _set_aside(self) -> None:
        try:
            os.posix_fallocate(self._descriptor, 0, max(1, self.size))
        except OSError as error:
            os.ftruncate(self._descriptor, 0)  # a part may have been set aside
            raise cannot_write(
                f"{self.name} cannot have {self.size / 2**30:.2f} GiB: {error.strerror}. Make room there, or name "
                f"another folder as {given('scratch_dir')}.",
                error,
            ) from error
        self.set_aside = True


def _open(path: str | PathLike[str], flags: int) -> tuple[int, bool]:
    """The descriptor, and whether it goes past the page cache: tmpfs, for example, always uses it."""
    try:
        return os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC, 0o600), True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return os.open(path, flags | os.O_CLOEXEC, 0o600), False
