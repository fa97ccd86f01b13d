"""Drafts: the folder beside its place in which a store is written, until it is whole and takes that place.

A draft is locked by the process that writes it. What a killed process left behind is therefore known from what a live
one is at, and is removed when the same store is written again.
"""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def drafted(target: Path) -> Iterator[Path]:
    """A new folder that takes the place of ``target`` at the end, or is gone after an error."""
    target = Path(os.path.abspath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent, wait=True):  # nobody may take it for left behind before it is locked
        draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
        draft.mkdir()
        lock = _lock(draft)
    try:
        yield draft
        put_in_place(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def tidy(target: Path) -> None:
    """Removes drafts of ``target`` that nobody is writing; an old store that had stepped aside comes back."""
    target = Path(os.path.abspath(target))
    if not target.parent.is_dir():
        return
    ours = re.compile(re.escape(f".{target.name}.") + "[0-9a-f]{12}")
    with _locked(target.parent, wait=True):
        found = [each for each in target.parent.iterdir() if ours.fullmatch(each.name.removesuffix(".old"))]
        for each in sorted(found, key=lambda path: not path.name.endswith(".old")):
            draft = each.with_name(each.name.removesuffix(".old"))
            if _is_written(draft):
                continue
            if each != draft and not target.exists():
                os.rename(each, target)
            else:
                shutil.rmtree(each, ignore_errors=True)


def put_in_place(draft: Path, target: Path) -> None:
    """Rename ``draft`` to ``target``; an old folder steps aside first and comes back if the rename fails."""
    aside = draft.with_name(draft.name + ".old")
    if target.exists():
        os.rename(target, aside)
    try:
        os.rename(draft, target)
    except OSError:
        if aside.exists():
            os.rename(aside, target)
        raise
    sync_folder(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Flushes a folder's list of files to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
