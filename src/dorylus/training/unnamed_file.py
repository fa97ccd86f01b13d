"""A file that has no name until it is whole: however the process ends before that, nothing is left of it.

Where the file system has no such files, it carries a hidden name until then. Only ``kill -9`` leaves that behind, and
the next file that is put into the folder sweeps it away: the file is locked while its process lives.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from dorylus import durable

_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EISDIR)


class UnnamedFile:
    """A file on its way to ``target``, open to be written; ``size`` bytes are set aside for it at once."""

    def __init__(self, target: Path, size: int = 0) -> None:
        self.target = target
        self._partial: Path | None = None
        durable.sweep_abandoned(target.parent)
        self.file: BinaryIO = os.fdopen(self._open(), "wb")
        try:
            durable.hold(self.file.fileno())
            if size:
                os.posix_fallocate(self.file.fileno(), 0, size)
        except BaseException:
            self.close()
            raise

    def settle(self) -> None:
        """Force to disk what was written, and have the page cache forget it: memory is for those who compute."""
        self.file.flush()
        os.fdatasync(self.file.fileno())
        os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def put_in_place(self) -> None:
        """Give the file its name, instead of the one that had it."""
        self.file.flush()
        os.fsync(self.file.fileno())
        if self._partial is None:
            self._partial = durable.partial_name(self.target)
            _link(self.file.fileno(), self._partial)
        os.replace(self._partial, self.target)
        self._partial = None
        durable.sync_folder(self.target.parent)

    def close(self) -> None:
        """Close the file; one that was not put in place is gone."""
        with suppress(OSError):  # what could not be written is thrown away
            self.file.close()
        if self._partial is not None:
            with suppress(OSError):  # the next file that is put into the folder sweeps it away
                self._partial.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> int:
        try:
            return os.open(self.target.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        self._partial = durable.partial_name(self.target)
        return os.open(self._partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)


def _link(descriptor: int, path: Path) -> None:
    """Name a file that has only a descriptor."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # With a folder given, and only then, Python makes the call that follows the link in /proc.
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)
