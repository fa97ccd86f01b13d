"""The destinations of a run log's records: the `Sink` protocol, a list in memory, and a file of JSON lines.

The file has one JSON object a line, which is on disk as soon as it is written; a line that a crash cut off is removed.
A line has at most ``MOST_LINE_BYTES``, which bounds the memory of a reader.
"""

import errno
import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from dorylus.errors import ConfigError, DorylusError, cannot_write, given, kind_of

Record = Mapping[str, Any]


class Sink(Protocol):
    """A destination of records: a file, a terminal, a list."""

    def write(self, record: Record) -> None:
        """Takes one record, which is not changed afterwards."""

    def close(self) -> None:
        """Releases files and terminals; called once, after the last record."""


def check_sinks(sinks: object) -> list[Sink]:
    """The sinks as a list; refuses what does not take records."""
    cure = "give a list of objects with write(record) and close(), such as dorylus.runs.MemorySink()"
    if not isinstance(sinks, Iterable) or isinstance(sinks, str | Mapping):
        raise ConfigError(f"{given('sinks')} is {kind_of(sinks)}: {cure}.")
    found = list(sinks)
    for number, each in enumerate(found):
        if isinstance(each, type) or not all(callable(getattr(each, name, None)) for name in ("write", "close")):
            raise ConfigError(f"{given('sinks')}[{number}] is {kind_of(each)}, which takes no records: {cure}.")
    return found


class MemorySink:
    """Keeps every record in ``records``, for tests and notebooks."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.closed = False

    def write(self, record: Record) -> None:
        """Keeps a copy."""
        self.records.append(dict(record))

    def close(self) -> None:
        """Sets ``closed``."""
        self.closed = True

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The records of one kind, in order."""
        return [record for record in self.records if record["kind"] == kind]


MOST_LINE_BYTES = 64 << 20  # a million spans
_BLOCK_BYTES = 1 << 20


class JsonlSink:
    """Writes each record as a line; with ``append``, after the whole lines that are in the file."""

    def __init__(self, path: str | os.PathLike[str], append: bool = False) -> None:
        self.path = Path(path)
        try:
            if append:
                mend(self.path)
            # Always at the end of the file: a log that another program has shortened gets no hole.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (0 if append else os.O_TRUNC)
            self._file = open(os.open(self.path, flags, 0o666), "wb", buffering=0)  # noqa: SIM115  (open while the run is)
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def write(self, record: Record) -> None:
        """Appends the record; the line goes to the system in one write, so that a crash tears at most the last."""
        text = line(record)
        if len(text) > MOST_LINE_BYTES:
            text = line(_left_out(record, len(text)))
        before = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(text) < len(text):
                raise OSError(errno.ENOSPC, "the disk is full")
        except OSError as error:
            with suppress(OSError):  # or a later record would be appended to this line
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
    """A value as strict JSON data: lists for tuples and arrays, null for numbers that are not finite."""
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
        end = file.seek(0, os.SEEK_END)
        begin = _last_line(file, end)
        file.seek(begin)
        if begin == end:
            return
        if end - begin <= MOST_LINE_BYTES and record_of(file.read(end - begin)) is not None:
            file.write(b"\n")
        else:
            file.truncate(begin)


def _last_line(file: BinaryIO, end: int) -> int:
    """Where the last line begins, searched from the end; the end of the file where the last line is whole."""
    while end > 0:
        begin = max(0, end - _BLOCK_BYTES)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def record_of(text: bytes) -> dict[str, Any] | None:
    """The record of a line; None where the line is not a whole record."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _left_out(record: Record, num_bytes: int) -> Record:
    """The record that is written in place of one that is too long for a line."""
    known = {name: record[name] for name in ("t", "epoch") if name in record}
    return {"kind": "left_out", **known, "record": record["kind"], "bytes": num_bytes}


def _plain(value: object) -> Any:
    """NumPy numbers and arrays, and paths, as JSON data."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} does not go into the run log: {value!r}")


def _cannot_write(path: Path, error: OSError) -> DorylusError:
    return cannot_write(
        f"cannot write the run log {path}: {error.strerror or error}. Make room, or choose a "
        f"{given('run_dir')} that can be written, then resume or start again.",
        error,
    )
