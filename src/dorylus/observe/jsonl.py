"""The run log as a file: one JSON object a line, on disk as soon as it is written, mended after a crash."""

import errno
import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dorylus.errors import DataError
from dorylus.observe.sink import Record


class JsonlSink:
    """Writes each record as a line; with ``append`` after what is there, less a last line that a crash cut off."""

    def __init__(self, path: str | os.PathLike[str], append: bool = False) -> None:
        self.path = Path(path)
        try:
            if append:
                mend(self.path)
            # Always at the end of the file: a log that something else cut short has no hole in it.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (0 if append else os.O_TRUNC)
            self._file = open(os.open(self.path, flags, 0o666), "wb", buffering=0)  # noqa: SIM115  (open while the run is)
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def write(self, record: Record) -> None:
        """Appends the record; the line goes to the system in one write, so that a crash tears at most the last."""
        text = line(record)
        before = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(text) < len(text):
                raise OSError(errno.ENOSPC, "the disk is full")
        except OSError as error:
            with suppress(OSError):  # or a record that fits later would go on in the middle of this line
                self._file.truncate(before)
            raise _cannot_write(self.path, error) from error

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def line(record: Record) -> bytes:
    """A record as strict JSON with its newline; numbers that are not finite become null."""
    try:
        text = json.dumps(record, allow_nan=False, ensure_ascii=False, default=_plain)
    except ValueError:
        text = json.dumps(plain_data(record), allow_nan=False, ensure_ascii=False)
    return text.encode() + b"\n"


def plain_data(value: Any) -> Any:
    """The same in strict JSON's words: lists for tuples and arrays, null for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return plain_data(_plain(value))


def mend(path: Path) -> None:
    """Cuts a torn last line off a log, or ends it with a newline where only that is missing."""
    if not path.exists():
        return
    with open(path, "r+b") as file:
        content = file.read()
        tail = content[content.rfind(b"\n") + 1 :]
        if tail and is_record(tail):
            file.write(b"\n")
        elif tail:
            file.truncate(len(content) - len(tail))


def is_record(text: bytes) -> bool:
    """Whether a line is a whole record."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _plain(value: object) -> Any:
    """NumPy numbers and arrays, and paths, as JSON data."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} does not go into the run log: {value!r}")


def _cannot_write(path: Path, error: OSError) -> DataError:
    return DataError(
        f"cannot write the run log {path}: {error.strerror or error}. Make room, or choose a run_dir that can be "
        "written, then resume or start again."
    )
