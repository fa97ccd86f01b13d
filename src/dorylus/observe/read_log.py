"""Reading a run log: of a finished run, a running one, or one that was killed in the middle of a line."""

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dorylus.errors import DataError
from dorylus.observe.jsonl import is_record
from dorylus.observe.sink import Record


def read_log(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Every whole record of a log, in order; a last line without its end is left out."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(
            f"cannot read the run log {path}: {error.strerror or error}. Give the log.jsonl of a run folder."
        ) from error
    lines = [text.strip(b"\0") for text in content.split(b"\n")]  # a hole in the file reads as zero bytes
    if not is_record(lines[-1]):
        lines.pop()
    return [_parsed(path, number, text) for number, text in enumerate(lines, 1) if text]


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
    lines = Path(path).read_bytes().split(b"\n") if Path(path).exists() else []
    times = [json.loads(text.strip(b"\0")).get("t") for text in lines if is_record(text.strip(b"\0"))]
    return max((float(t) for t in times if isinstance(t, int | float) and math.isfinite(t)), default=0.0)


def _parsed(path: str | os.PathLike[str], number: int, text: bytes) -> dict[str, Any]:
    if not is_record(text):
        raise DataError(
            f"line {number} of the run log {path} is not a record: the file was changed by something else. Remove that "
            "line to read the rest."
        )
    record: dict[str, Any] = json.loads(text)
    return record
