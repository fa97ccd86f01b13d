"""Drafts: the folder beside its place in which a store is written, until it is whole and takes that place.

A draft is locked by the process that writes it. What a killed process left behind is therefore known from what a live
one is at, and is removed when the same store is written again.

A folder in the lower layer of an overlay (a store in an image of Docker) cannot be renamed. There a draft that is whole
is named ``.new``, the old store is removed, and the new one takes its place; whatever happens in between, the next
writer goes on with it, and a reader is told where it is.
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
WAIT_S = 600.0  # for another process that writes the same, and may have been stopped


@contextmanager
def drafted(target: Path, *, overwrite: bool = True) -> Iterator[Path]:
    """A new folder that takes the place of ``target`` at the end, or is gone after an error.

    Without ``overwrite``, a folder that another process has put there meanwhile stays: ENOTEMPTY or EEXIST.
    """
    target = _place(target)
    if _is_mount_point(target):
        raise DataError(
            f"{target} is a mount point, and no new folder can take its place: choose a folder in it, or unmount it."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent, wait=True):  # nobody may take it for left behind before it is locked
        draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
        draft.mkdir()
        lock = _lock(draft)
    try:
        yield draft
        try:
            if overwrite:
                put_folder_in_place(draft, target, aside=draft.with_name(draft.name + OLD))
            else:
                os.rename(draft, target)  # refused by the system where a folder with files stands
                sync_folder(target.parent)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            whole = draft.with_name(draft.name + NEW)
            os.rename(draft, whole)  # from here on it is this one that counts
            sync_folder(target.parent)
            _take_place_of(whole, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def tidy(target: Path) -> None:
    """Removes drafts of ``target`` that nobody is writing.

    An old store that had stepped aside comes back, and a new one that was taking its place goes on.
    """
    target = _place(target)
    if not target.parent.is_dir():
        return
    ours = re.compile(re.escape(f".{target.name}.") + "[0-9a-f]{12}")
    with _locked(target.parent, wait=True):
        for whole in _whole(target):
            if not _is_written(whole):
                _take_place_of(whole, target)
        found = [each for each in target.parent.iterdir() if ours.fullmatch(each.name.removesuffix(OLD))]
        for each in sorted(found, key=lambda path: not path.name.endswith(OLD)):
            draft = each.with_name(each.name.removesuffix(OLD))
            if _is_written(draft):
                continue
            if each != draft and not target.exists():
                os.rename(each, target)
            else:
                shutil.rmtree(each, ignore_errors=True)


@contextmanager
def write_lock(path: Path) -> Iterator[None]:
    """Holds the lock of processes that write ``path``; where it cannot be had in time, or at all, goes on without.

    The lock is on a hidden file beside ``path``, which is removed at the end. On NFS 4 it holds between machines.
    """
    lock = path.with_name(f".{path.name}.lock")
    descriptor = _wait_for(lock)
    try:
        yield
    finally:
        if descriptor is not None:
            # Removed while it is held: a process that has opened it meanwhile sees that it is no longer there.
            with suppress(OSError):
                if is_at(descriptor, lock):
                    lock.unlink()
            os.close(descriptor)


def taking_its_place(target: Path) -> Path | None:
    """The whole new folder that was about to take the place of ``target`` when its process ended, if there is one."""
    with suppress(OSError):
        return next(iter(_whole(_place(target))), None)
    return None


def _take_place_of(whole: Path, target: Path) -> None:
    """Removes ``target``, which cannot be renamed, file by file, and gives its place to ``whole``."""
    if target.is_dir():
        # The manifest first: without it, what is left is not taken for a store.
        for each in sorted(target.iterdir(), key=lambda path: path.suffix == ".bin"):
            shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        target.rmdir()
    os.rename(whole, target)
    sync_folder(target.parent)


def _is_mount_point(path: Path) -> bool:
    """Whether something is mounted there, a folder of the same disk included."""
    if os.path.ismount(path):
        return True
    with suppress(OSError):  # only Linux lists them
        mounts = Path("/proc/self/mountinfo").read_bytes().splitlines()
        escaped = re.sub(rb"[\\ \t\n]", lambda each: b"\\%03o" % each[0][0], os.fsencode(path))
        return any(line.split()[4] == escaped for line in mounts)
    return False


def _place(target: Path) -> Path:
    """Where a folder lies; of a link, what it leads to."""
    return Path(os.path.realpath(target))


def _whole(target: Path) -> list[Path]:
    """New folders that are about to take the place of ``target``."""
    ours = re.compile(re.escape(f".{target.name}.") + "[0-9a-f]{12}" + re.escape(NEW))
    return sorted(each for each in target.parent.iterdir() if ours.fullmatch(each.name))


def _wait_for(lock: Path) -> int | None:
    """The file of a lock, open, and locked where it can be in time; None where it cannot be made."""
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
        os.close(descriptor)  # its holder removed it just now


def _lock_file(descriptor: int, until_s: float) -> None:
    """Lock a file, unless the file system has no locks, or another process keeps it until then."""
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


def _is_written(draft: Path) -> bool:
    """Whether a live process holds the draft; one that cannot be asked counts as held."""
    if not draft.exists():
        return False
    with _locked(draft, wait=False) as locked:
        return not locked


@contextmanager
def _locked(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Holds the lock of a folder, where the file system has such; whether it does."""
    lock = _lock(folder, wait=wait)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


def _lock(folder: Path, *, wait: bool = False) -> int | None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    with suppress(OSError):  # taken, or a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return descriptor
    os.close(descriptor)
    return None
