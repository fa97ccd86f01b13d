"""Reading a run log: of a finished run, a running one, or one that was killed in the middle of a line."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from dorylus.errors import DataError
from dorylus.observe import jsonl
from dorylus.observe.jsonl import record_of
from dorylus.observe.sink import Record

_PIECE_BYTES = 1 << 20
_MOST_SECONDS = 1e15  # more, or what is not finite, is not a time of a run


def read_log(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Every whole record of a log, in order; a last line without its end is left out."""
    records = []
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(_lines(file), 1):
                if line is None:
                    raise _no_record(path, number, f"is longer than {jsonl.MOST_LINE_BYTES:,} bytes")
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


def last_time(path: str | os.PathLike[str]) -> float:
    """The latest ``t`` of a log's records, for a run that goes on with it; 0 where there is no log or no record.

    Lines that are no records are passed over: a damaged log is no reason not to go on.
    """
    if not Path(path).exists():
        return 0.0
    with open(path, "rb") as file:
        records = (record_of(line.strip(b"\0\n")) for line in _lines(file) if line is not None)
        times = [record.get("t") for record in records if record is not None]
    return max((float(t) for t in times if isinstance(t, int | float) and abs(t) < _MOST_SECONDS), default=0.0)


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """The lines of a log with their newlines; None for one that is longer than a line may be, as soon as it is."""
    line, too_long = bytearray(), False
    while piece := file.readline(_PIECE_BYTES):
        if not too_long:
            line += piece
        if len(line) > jsonl.MOST_LINE_BYTES:
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
        f"line {number} of the run log {path} {what}: the file was changed by something else. Remove that line to read "
        "the rest."
    )
