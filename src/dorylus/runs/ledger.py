"""The ledger: the usage of a run, written while it runs, so that the bill of a killed process is right.

The file holds two entries, which are written in turn: a kill in the middle of one leaves the other. An entry is the
usage so far, after a checksum. During the run an entry holds the usage expected half an interval later, so the bill of
a killed run is at most half an interval off. Nothing is forced to disk: ``kill -9`` loses nothing, and a power cut at
most the usage since the last checkpoint (``used.json``).
"""

import json
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dorylus.errors import DorylusError, cannot_write, given

EVERY_S = 0.05
_ENTRY_BYTES = 4096
_MOST = 1 << 63


class UsageLedger:
    """Writes what ``used`` returns, every ``EVERY_S`` seconds and on :meth:`write`.

    ``used(ahead_s)`` is the usage in ``ahead_s`` seconds.
    """

    def __init__(self, path: Path, used: Callable[[float], Mapping[str, Any]]) -> None:
        self._path, self._used = path, used
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._number, self._process = 0, os.getpid()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._cannot_write(error) from error
        self._thread = threading.Thread(target=self._keep_writing, name="dorylus-ledger", daemon=True)
        self._thread.start()

    def write(self) -> None:
        """Write the usage so far."""
        try:
            self._write(EVERY_S / 2)
        except OSError as error:
            raise self._cannot_write(error) from error

    def restore_previous(self, used: Mapping[str, Any] | None) -> None:
        """Write the usage from before this process and stop: the run was refused, and costs nothing.

        None: there was no ledger before, and the file is removed.
        """
        if used is None:
            self._path.unlink(missing_ok=True)
            return
        self._used = lambda ahead_s: used
        for _ in range(2):  # both entries: the larger one counts
            self.write()

    def close(self) -> None:
        """Write the usage, and stop."""
        self._stopped.set()
        self._thread.join()
        with suppress(OSError):
            for _ in range(2):  # no entry is of a later time
                self._write(0.0)
        with self._lock:
            os.close(self._file)
            self._file = -1

    def _keep_writing(self) -> None:
        while not self._stopped.wait(EVERY_S):
            with suppress(OSError):  # raised in the run's own thread by write()
                self._write(EVERY_S / 2)

    def _write(self, ahead_s: float) -> None:
        if self._process != os.getpid():  # a forked child: its time is not the run's
            return
        with self._lock:
            if self._file < 0:  # an invocation that was dropped may begin after the end
                return
            os.pwrite(self._file, _entry(self._used(ahead_s)), (self._number % 2) * _ENTRY_BYTES)
            self._number += 1

    def _cannot_write(self, error: OSError) -> DorylusError:
        return cannot_write(
            f"cannot write the usage of the run to {self._path}: {error.strerror or error}. Make room, or choose a "
            f"{given('run_dir')} that can be written, then resume or start again.",
            error,
        )


def read_ledger(path: Path) -> dict[str, Any] | None:
    """The last complete entry; None where there is none."""
    try:
        with open(path, "rb") as file:
            content = file.read(2 * _ENTRY_BYTES)
    except FileNotFoundError:
        return None
    entries = [_read(content[begin : begin + _ENTRY_BYTES]) for begin in (0, _ENTRY_BYTES)]
    return newest(entry for entry in entries if entry is not None)


def newest(entries: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The entry that was written last: usage only grows."""
    return max(entries, key=_amount, default=None)


def _amount(used: Mapping[str, Any]) -> tuple[int, int]:
    """The time of servers and the number of requests; below 0 where ``used`` is no entry."""
    with suppress(KeyError, TypeError, AttributeError):
        servers = sum(sum(phases.values()) for phases in used["server_ns"].values())
        requests = sum(use["requests"] for use in used["functions"].values())
        if isinstance(used.get("service"), str | None) and 0 <= servers < _MOST and 0 <= requests < _MOST:
            return servers, requests
    return -1, -1


def is_entry(used: Mapping[str, Any]) -> bool:
    """Whether this can be the usage of a run."""
    return _amount(used) >= (0, 0)


def _entry(used: Mapping[str, Any]) -> bytes:
    text = json.dumps(used).encode()
    line = b"%08x %s" % (zlib.crc32(text), text)
    if len(line) >= _ENTRY_BYTES:
        raise ValueError(f"an entry of {len(line)} bytes: it may have {_ENTRY_BYTES}.")
    return line.ljust(_ENTRY_BYTES - 1) + b"\n"


def _read(entry: bytes) -> dict[str, Any] | None:
    checksum, _, text = entry.rstrip().partition(b" ")
    with suppress(ValueError, RecursionError):
        used: Any = json.loads(text) if int(checksum, 16) == zlib.crc32(text) else None
        return used if is_entry(used) else None
    return None
