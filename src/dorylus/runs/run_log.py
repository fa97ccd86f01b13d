"""The run log: its records, `RunLog`, which writes them to every sink, and how a log is read.

A record is a flat table with ``kind``, ``t`` (seconds since the run began, never going back) and

    run          config, graph {name, vertices, edges, features, classes}, model {name, parameters},
                 resumed_from (the last finished epoch of the checkpoint, or None), run_dir (or None),
                 began (date and time, with the zone)
    epoch        epoch (1 is the first), loss (before its step), seconds, memory_bytes, mapped_bytes,
                 tasks {kind: seconds}, busy {cores, pool, network: seconds}, traffic {kind: bytes},
                 ages {age in epochs: values read}, waits (at the staleness bound),
                 files {read_bytes, written_bytes} (under a memory limit)
    memory       peak_bytes, resident {kind: bytes}, on_disk {kind: bytes}, read_bytes, written_bytes: as predicted
    set_up       stage, done_bytes, total_bytes, seconds; at its end stage is None
    evaluation   epoch, train_accuracy, val_accuracy, test_accuracy and further scores
    spans        epoch, spans [[kind, step, interval, thread, start_s, end_s, server, epoch], ...], seconds counted
                 from the first of them
    checkpoint   epoch, path
    left_out     record (its kind), epoch, bytes: a record longer than a line of the file may be
    unlocked     run_dir: its file system has no locks
    synchronous  epoch (the last asynchronous one), score
    stop         reason ("epochs", "patience", "target_accuracy", "interrupted", "budget", "diverged"), epoch
    result       test_accuracy, val_accuracy, epochs, seconds, peak_memory_bytes, work, run_dir, mode, staleness,
                 servers, ghost_precision, traffic, ages, busy {resource: share of the time}, waits

Readers ignore fields and kinds that they do not know. A number that is not finite is written as ``null``.
After a crash a log continues after its last whole line; epochs that are trained again are in it twice, and
:func:`dorylus.runs.run_log.current` leaves out those that no longer count. A log can be read of a finished run, of a
running one, and of one that was killed in the middle of a line.

A file of it has one JSON object a line, which is on disk as soon as it is written; a line that a crash cut off is
removed. A line has at most ``MOST_LINE_BYTES``, which bounds the memory of a reader.
"""

import errno
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self

from dorylus.errors import ConfigError, DataError, DorylusError, cannot_write, given, kind_of
from dorylus.files import is_at

Record = Mapping[str, Any]

_PIECE_BYTES = 1 << 20
_MOST_SECONDS = 1e15  # more, or what is not finite, is not a time of a run


def read_log(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Every whole record of a log, in order; a last line without its end is left out."""
    records = []
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(_lines(file), 1):
                if line is None:
                    raise _no_record(path, number, f"is longer than {MOST_LINE_BYTES:,} bytes")
                text = line.strip(b"\0\n")  # a hole in the file reads as zero bytes
                record = record_of(text)
                if record is not None:
                    records.append(record)
                elif text and line.endswith(b"\n"):
                    raise _no_record(path, number, "is not a record")
    except OSError as error:
        raise DataError(
            f"cannot read the run log {path}: {error.strerror or error}. Give the log.jsonl of a run folder."
        ) from error
    return records


def current(records: Iterable[Record]) -> list[Record]:
    """The records that count: epochs that a resumed run trained again are taken from their last time."""
    kept: list[Record] = []
    for record in records:
        resumed_from = record.get("resumed_from") if record["kind"] == "run" else None
        if resumed_from is not None:
            kept = [each for each in kept if each["kind"] != "result" and each.get("epoch", 0) <= resumed_from]
        kept.append(record)
    return kept


@contextmanager
def malformed_refused(path: str | os.PathLike[str]) -> Iterator[None]:
    """Around work on the records of a log: fields that no run writes, such as text for seconds, are a DataError."""
    try:
        yield
    except DorylusError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise DataError(
            f"the run log {path} has records that are not as they should be ({type(error).__name__}: {error}): another "
            f"program has changed the file."
        ) from error


class LogFollower:
    """Reads what is added to a run log that is still written, or not there yet.

    A line counts once its newline is there. The log is read again from its start where a resumed run trains epochs
    again, or where it was replaced; a folder that is moved meanwhile is followed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._file: BinaryIO | None = None
        self._at = 0
        self._has_begun = False

    def read(self) -> tuple[bool, list[Record]]:
        """The records since the last call; or True and all that count, if those before no longer do."""
        if self._file is None or self._is_replaced(self._file):
            self.close()
            with suppress(FileNotFoundError):
                self._file = open(self._path, "rb")  # noqa: SIM115  (until it is replaced or closed)
        if self._file is None:
            return False, []
        records = self._new_records(self._file)
        is_anew = self._has_begun and any(record["kind"] == "run" for record in records)
        if is_anew:
            self._at = 0
            records = self._new_records(self._file)
        first, self._has_begun = not self._has_begun, self._has_begun or bool(records)
        return is_anew or (first and bool(records)), current(records) if is_anew or first else records

    def close(self) -> None:
        """Close the file; the next call reads it from its start."""
        if self._file is not None:
            self._file.close()
        self._file, self._at, self._has_begun = None, 0, False

    def _is_replaced(self, file: BinaryIO) -> bool:
        if os.fstat(file.fileno()).st_size < self._at:
            return True
        return self._path.exists() and not is_at(file.fileno(), self._path)

    def _new_records(self, file: BinaryIO) -> list[Record]:
        file.seek(self._at)
        records: list[Record] = []
        for line in _lines(file):
            if line is not None and not line.endswith(b"\n"):
                break
            self._at = file.tell() if line is None else self._at + len(line)
            record = None if line is None else record_of(line.strip(b"\0\n"))
            if record is not None and isinstance(record.get("kind"), str):
                records.append(record)
        return records


def last_time(path: str | os.PathLike[str]) -> float:
    """The latest ``t`` of a log's records, for a run that continues it; 0 where there is no log or no record.

    Lines that are no records are skipped: a run may continue with a damaged log.
    """
    if not Path(path).exists():
        return 0.0
    with open(path, "rb") as file:
        records = (record_of(line.strip(b"\0\n")) for line in _lines(file) if line is not None)
        times = [record.get("t") for record in records if record is not None]
    return max((float(t) for t in times if isinstance(t, int | float) and abs(t) < _MOST_SECONDS), default=0.0)


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """The lines of a log with their newlines; None for one that is too long."""
    line, too_long = bytearray(), False
    while piece := file.readline(_PIECE_BYTES):
        if not too_long:
            line += piece
        if len(line) > MOST_LINE_BYTES:
            yield None
            line, too_long = bytearray(), True
        if piece.endswith(b"\n"):
            if not too_long:
                yield bytes(line)
            line, too_long = bytearray(), False
    if line:
        yield bytes(line)


def _no_record(path: str | os.PathLike[str], number: int, what: str) -> DataError:
    return DataError(
        f"line {number} of the run log {path} {what}: another program has changed the file. Remove that line to read "
        "the rest."
    )


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


class RunLog:
    """Adds the time to records and writes them to every sink, in the same order for all sinks; any thread may write.

    ``started_s`` is the last time in the log of a run that continues.
    """

    def __init__(
        self, sinks: Iterable[Sink] = (), *, started_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sinks = list(sinks)
        self._clock = clock
        self._zero = clock() - started_s
        self._lock = threading.Lock()

    def write(self, kind: str, **fields: Any) -> None:
        """Adds one record."""
        with self._lock:
            record = {"kind": kind, "t": round(self._clock() - self._zero, 6), **fields}
            for sink in self._sinks:
                sink.write(record)

    def close(self) -> None:
        """Closes every sink, also when one of them fails to."""
        with self._lock:
            sinks, self._sinks = self._sinks, []
        errors = [error for sink in sinks if (error := _closing_error(sink))]
        if errors:
            raise errors[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _closing_error(sink: Sink) -> Exception | None:
    try:
        sink.close()
    except Exception as error:
        return error
    return None
