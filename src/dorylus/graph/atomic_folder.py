"""Atomic replacement of a folder: it is written to a temporary folder beside the target, which is then renamed.

The writing process holds a lock on the temporary folder. One without a lock was left by a killed process and is removed
by the next writer of the same target.

A folder in the lower layer of an overlay (a store in a Docker image) cannot be renamed. There the complete temporary
folder gets the suffix ``.new``, the old folder is removed, and the new one is renamed. If the process ends in between,
the next writer completes the replacement, and the error of a reader names the new folder.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dorylus.errors import DataError
from dorylus.files import OLD, is_at, put_folder_in_place, sync_folder

NEW = ".new"
WAIT_S = 600.0  # for the lock of another process, which may have been stopped


@contextmanager
def replacing_folder(target: Path, *, overwrite: bool = True) -> Iterator[Path]:
    """A new temporary folder that replaces ``target`` on success and is removed after an error.

    Without ``overwrite``, a folder that another process has put there in the meantime stays: ENOTEMPTY or EEXIST.
    """
    target = _resolve(target)
    if _is_mount_point(target):
        raise DataError(
            f"{target} is a mount point, and no new folder can take its place: choose a folder in it, or unmount it."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    draft, lock = target.with_name(f".{target.name}.{secrets.token_hex(6)}"), None
    try:  # entered before the folder exists: a signal handler may raise anywhere
        with _locked(target.parent, wait=True):  # no other writer may remove it before it is locked
            draft.mkdir()
            lock = _lock(draft)
        yield draft
        try:
            if overwrite:
                put_folder_in_place(draft, target, aside=draft.with_name(draft.name + OLD))
            else:
                os.rename(draft, target)  # the system refuses to replace a folder that has files
                sync_folder(target.parent)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            whole = draft.with_name(draft.name + NEW)
            os.rename(draft, whole)  # from here on this folder is the valid one
            sync_folder(target.parent)
            _replace_by_removal(whole, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def remove_leftovers(target: Path) -> None:
    """Remove temporary folders of ``target`` that no live process is writing.

    An interrupted replacement is completed, or the old folder restored.
    """
    target = _resolve(target)
    if not target.parent.is_dir():
        return
    ours = re.compile(re.escape(f".{target.name}.") + "[0-9a-f]{12}")
    with _locked(target.parent, wait=True):
        for whole in _complete_folders(target):
            if not _is_locked(whole):
                _replace_by_removal(whole, target)
        leftovers = [each for each in target.parent.iterdir() if ours.fullmatch(each.name.removesuffix(OLD))]
        for each in sorted(leftovers, key=lambda path: not path.name.endswith(OLD)):
            draft = each.with_name(each.name.removesuffix(OLD))
            if _is_locked(draft):
                continue
            if each != draft and not target.exists():
                os.rename(each, target)
            else:
                shutil.rmtree(each, ignore_errors=True)


@contextmanager
def write_lock(path: Path) -> Iterator[None]:
    """Hold the lock of processes that write ``path``; continue without it after a time limit or without file locks.

    The lock is on a hidden file beside ``path``, which is removed at the end. On NFS 4 it holds between machines.
    """
    lock = path.with_name(f".{path.name}.lock")
    descriptor = _wait_for(lock)
    try:
        yield
    finally:
        if descriptor is not None:
            # Remove the file while its lock is held: a process that has opened it sees that the name is gone.
            with suppress(OSError):
                if is_at(descriptor, lock):
                    lock.unlink()
            os.close(descriptor)


def unfinished_replacement(target: Path) -> Path | None:
    """The complete new folder that was about to replace ``target`` when its writer ended, if there is one."""
    with suppress(OSError):
        return next(iter(_complete_folders(_resolve(target))), None)
    return None


def _replace_by_removal(whole: Path, target: Path) -> None:
    """Remove ``target``, which cannot be renamed, file by file, and rename ``whole`` to it."""
    if target.is_dir():
        # The manifest first: without it, the remaining files do not pass for a store.
        for each in sorted(target.iterdir(), key=lambda path: path.suffix == ".bin"):
            shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        target.rmdir()
    os.rename(whole, target)
    sync_folder(target.parent)


def _is_mount_point(path: Path) -> bool:
    """Whether the path is a mount point; bind mounts of the same disk count."""
    if os.path.ismount(path):
        return True
    with suppress(OSError):  # only Linux has the list
        mounts = Path("/proc/self/mountinfo").read_bytes().splitlines()
        escaped = re.sub(rb"[\\ \t\n]", lambda each: b"\\%03o" % each[0][0], os.fsencode(path))
        return any(line.split()[4] == escaped for line in mounts)
    return False


def _resolve(target: Path) -> Path:
    """The real path of a folder, with links resolved."""
    return Path(os.path.realpath(target))


def _complete_folders(target: Path) -> list[Path]:
    """Complete new folders that were about to replace ``target``."""
    ours = re.compile(re.escape(f".{target.name}.") + "[0-9a-f]{12}" + re.escape(NEW))
    return sorted(each for each in target.parent.iterdir() if ours.fullmatch(each.name))


def _wait_for(lock: Path) -> int | None:
    """The descriptor of the lock file, locked unless the time limit passed; None if the file cannot be created."""
    until_s = time.monotonic() + WAIT_S
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return None
        try:
            _lock_file(descriptor, until_s)
        except BaseException:
            os.close(descriptor)
            raise
        if is_at(descriptor, lock):
            return descriptor
        os.close(descriptor)  # its holder has just removed it


def _lock_file(descriptor: int, until_s: float) -> None:
    """Lock a file, unless the file system has no locks or another process holds the lock until then."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until_s:
                return
            time.sleep(0.05)
        except OSError:
            return
        else:
            return


def _is_locked(draft: Path) -> bool:
    """Whether a live process holds the temporary folder; without file locks the answer is yes."""
    if not draft.exists():
        return False
    with _locked(draft, wait=False) as locked:
        return not locked


@contextmanager
def _locked(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of a folder; yields whether the lock was taken."""
    lock = _lock(folder, wait=wait)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


def _lock(folder: Path, *, wait: bool = False) -> int | None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    with suppress(OSError):  # held by another process, or a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return descriptor
    os.close(descriptor)
    return None
