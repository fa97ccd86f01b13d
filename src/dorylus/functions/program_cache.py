"""A cache of programs on disk: an export takes seconds, a look-up a millisecond.

A program lies in one file, named by the key of what it was made from. Its first line is the SHA-256 of the rest, so
that a damaged file is noticed and made again; then a line of JSON with the names of its arrays; then its content.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from dorylus.files import FileTooLargeError, new_file, read_small
from dorylus.functions.program import ExportedProgram, ProgramError, role

_SUFFIX = ".program"
_MAX_BYTES = 128 << 20


def default_folder() -> Path:
    """The user's cache folder: ``$XDG_CACHE_HOME/dorylus/programs``, or ``~/.cache/dorylus/programs``."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "dorylus" / "programs"


class ProgramCache:
    """A folder of programs. Several processes may share it; at most ``max_bytes``, the least used are dropped first.

    A folder that cannot be read or written does not stop a run: then the cache is empty and stores nothing.
    """

    def __init__(self, folder: Path | None = None, *, max_bytes: int = _MAX_BYTES) -> None:
        self.folder = default_folder() if folder is None else folder
        self._max_bytes = max_bytes

    def get(self, key: str) -> ExportedProgram | None:
        """The program kept under a key; None if there is none, or if its file is damaged."""
        path = self._path(key)
        try:
            found = read_small(path, self._max_bytes)
            os.utime(path)  # mark as used: the least recently used are dropped first
        except (OSError, FileTooLargeError):
            return None
        return _read(key, found)

    def put(self, key: str, program: ExportedProgram) -> None:
        """Keep a program under a key; a concurrent reader sees all of it or nothing."""
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with new_file(self._path(key), sync=False) as file:
                file.write(_written(key, program))
            self._drop_the_least_used()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _drop_the_least_used(self) -> None:
        room = self._max_bytes
        for _, size, path in sorted(self._files(), reverse=True):
            room -= size
            if room < 0:
                path.unlink(missing_ok=True)

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):  # another process dropped or renamed it
                found = path.stat()
                yield found.st_mtime_ns, found.st_size, path


def _written(key: str, program: ExportedProgram) -> bytes:
    about = {"key": key, "inputs": program.inputs, "outputs": program.outputs, "kept": program.kept}
    rest = json.dumps(about).encode() + b"\n" + program.content
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def _read(key: str, found: bytes) -> ExportedProgram | None:
    claimed, _, rest = found.partition(b"\n")
    if hashlib.sha256(rest).hexdigest().encode() != claimed:
        return None
    line, _, content = rest.partition(b"\n")
    try:
        about = json.loads(line)
        inputs, outputs, kept = about["inputs"], about["outputs"], about["kept"]
        if about["key"] != key:  # a file that was copied or renamed
            return None
        for name in (*inputs, *outputs, *(kept or {})):
            role(name)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError, ProgramError):
        return None  # written by another release or another program
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not _are_widths(kept):
        return None
    return ExportedProgram.of(content, tuple(inputs), tuple(outputs), kept)


def _are_widths(kept: Any) -> bool:
    return kept is None or (
        isinstance(kept, dict) and all(type(width) is int and width >= 0 for width in kept.values())
    )
