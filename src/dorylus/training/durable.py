"""Files and folders that are either there whole or not there at all, even after ``kill -9`` or a power cut.

Everything is written beside its place under a hidden name, forced to disk, and renamed. Whatever still carries such a
name was left by a crash and may be swept away.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

PARTIAL = ".partial-"


def write_file(path: Path, content: bytes) -> None:
    """Puts a whole file in place, instead of the one there was."""
    write_file_with(path, lambda partial: _write_new(partial, content))


def write_file_with(path: Path, write: Callable[[Path], None]) -> None:
    """Like :func:`write_file`, for content that a library writes to a path of its own."""
    partial = partial_name(path)
    try:
        write(partial)
        _sync(partial, os.O_RDONLY)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Puts a whole folder of files in place, instead of the one there was."""
    partial = partial_name(path)
    partial.mkdir()
    try:
        for name, content in files.items():
            _write_new(partial / name, content)
            _sync(partial / name, os.O_RDONLY)
        sync_folder(partial)
        _move_into_place(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Takes a folder away in one step: no reader ever sees half of it."""
    doomed = partial_name(path)
    os.replace(path, doomed)
    shutil.rmtree(doomed)


def sweep(folder: Path) -> None:
    """Removes what a crash left half-written in ``folder``, whose only writer is the caller."""
    for left in folder.glob(f"{PARTIAL}*"):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


def sync_folder(folder: Path) -> None:
    """Forces the names in a folder to disk."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _move_into_place(partial: Path, path: Path) -> None:
    if path.exists():
        # A folder cannot be renamed over one that holds files: for a moment neither stands at this path.
        remove_folder(path)
    os.replace(partial, path)


def partial_name(path: Path) -> Path:
    """The hidden name that a path's content has until it is whole."""
    # No tempfile: its files are readable by the owner alone, whatever the umask says.
    return path.parent / f"{PARTIAL}{os.getpid()}-{secrets.token_hex(4)}-{path.name}"


def _write_new(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
