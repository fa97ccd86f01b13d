"""Files and folders that are written whole or not at all, even after ``kill -9`` or a power cut.

Everything is written beside its place under a hidden name, forced to disk, and renamed. A folder that takes the place
of another is exchanged with it in one step, and the old one is removed afterwards. A path that still has a hidden name
was left by a crash: the next writer removes it. :func:`read_small` reads files that are small by their purpose.
"""

import ctypes
import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from dorylus.errors import ConfigError, kind_of

PARTIAL = ".partial-"
OLD = ".old"  # the suffix of a folder that is moved aside where two names cannot be exchanged
_HIDDEN = re.compile(re.escape(PARTIAL) + r"(\d+-)?[0-9a-f]{8,}-.+", re.DOTALL)
_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE, AT_FDCWD
_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV)


def check_is_path(what: str, value: object, example: str) -> None:
    """Refuse what is no path, in the words of a caller of Python."""
    if not isinstance(value, str | os.PathLike):
        raise ConfigError(f"{what} is {kind_of(value)}, but it is a path or a name: give one, such as {example!r}.")


def write_file(path: Path, content: bytes) -> None:
    """Puts a whole file in place, instead of the one there was."""
    partial = partial_name(path)
    try:
        _write_new(partial, content)
        _sync(partial, os.O_RDONLY)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def new_file(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """A file to be written, for a folder that several processes write to; at the end it takes its place.

    It is locked while it is written, so that files of a killed process are distinguished from those in progress, and
    removed. Without ``sync`` its content is not forced to disk: for a cache whose files carry checksums.
    """
    sweep_abandoned(path.parent)
    partial = partial_name(path)
    try:  # entered before the file exists: a signal handler may raise anywhere
        with open(partial, "xb") as file:
            hold(file.fileno())
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
            os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Puts a whole folder of files in place, instead of the one there was."""
    partial = partial_name(path)
    try:
        partial.mkdir()
        for name, content in files.items():
            _write_new(partial / name, content)
            _sync(partial / name, os.O_RDONLY)
        sync_folder(partial)
        put_folder_in_place(partial, path, aside=path.with_name(path.name + OLD))
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def put_folder_in_place(new: Path, path: Path, *, aside: Path) -> None:
    """Moves a complete folder to its place.

    An old folder there is exchanged with it in one step, then removed. Where the file system cannot exchange two names
    (NFS), the old folder is moved ``aside`` first, and readers look there, too.
    """
    if not os.path.lexists(path):
        os.rename(new, path)
        old = aside  # left by an earlier crash
    elif exchange(new, path):
        old = new
    else:
        _remove(aside)
        os.rename(path, aside)
        try:
            os.rename(new, path)
        except OSError:
            os.rename(aside, path)
            raise
        old = aside
    sync_folder(path.parent)  # the new folder must be on disk before the old one is removed
    with suppress(OSError):  # the next writer removes what is left of it
        _remove(old)


def exchange(first: Path, second: Path) -> bool:
    """Exchanges two names in one step; False where the file system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if renameat2(_HERE, os.fsencode(first), _HERE, os.fsencode(second), ctypes.c_uint(_EXCHANGE)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(first), None, str(second))


def remove_folder(path: Path) -> None:
    """Removes a folder so that no reader sees part of it."""
    doomed = partial_name(path)
    os.replace(path, doomed)
    sync_folder(path.parent)  # or part of it may be there after a power cut
    shutil.rmtree(doomed)


def sweep(folder: Path) -> None:
    """Removes what a crash left half-written in ``folder``, whose only writer is the caller."""
    for left in _hidden(folder):
        _remove(left)


def sweep_abandoned(folder: Path) -> None:
    """Removes files that a crash left half-written in ``folder``, to which other processes may be writing, too.

    Files of live processes are locked (:func:`hold`). Where the file system has no locks, all are left.
    """
    for left in _hidden(folder):
        with suppress(OSError):  # another process removed it, or renamed it, or may open no file
            descriptor = os.open(left, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()
            finally:
                os.close(descriptor)


def hold(descriptor: int) -> None:
    """Locks a file that is being written, where the file system has locks."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at the path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False


def sync_folder(folder: Path) -> None:
    """Forces the names in a folder to disk."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def partial_name(path: Path) -> Path:
    """The hidden name that a path's content has until it is whole."""
    # No tempfile: its files are readable by the owner alone, whatever the umask.
    return path.parent / f"{PARTIAL}{secrets.token_hex(8)}-{path.name}"


def _hidden(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if _HIDDEN.fullmatch(path.name)]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _write_new(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


MOST_BYTES = 4 << 20  # of settings, results and prices, which have kilobytes
_PIECE_BYTES = 1 << 16


class FileTooLargeError(ValueError):
    """A file that is larger than any of its kind; the message names it."""


def read_small(path: str | PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """All of a file of at most so many bytes."""
    with open(path, "rb") as file:
        return read_at_most(file, most_bytes, Path(path).name)


def read_at_most(file: BinaryIO, most_bytes: int, name: str) -> bytes:
    """What is left of an open file; ``name`` is the file's in the message."""
    content = bytearray()
    while piece := file.read(_PIECE_BYTES):  # allocate no more than the file has
        content += piece
        if len(content) > most_bytes:
            raise FileTooLargeError(f"{name} has more than {most_bytes:,} bytes, the most of a file of its kind")
    return bytes(content)
