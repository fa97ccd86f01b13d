"""The append-only run log: one record for each thing worth knowing about a run, handed to every sink.

A record is a flat table with ``kind``, ``t`` (seconds since the run began, never going back) and

    run          config, graph {name, vertices, edges, features, classes}, model {name, parameters},
                 resumed_from (the last finished epoch of the checkpoint, or None), run_dir (or None)
    epoch        epoch (1 is the first), loss (before its step), seconds, memory_bytes, tasks {kind: seconds},
                 busy {cores, pool, network: seconds}, traffic {kind: bytes}, ages {age in epochs: values read},
                 waits (at the staleness bound), files {read_bytes, written_bytes} (under a memory limit)
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

Readers take further fields and kinds in their stride. A number that is not finite is written as ``null``.
After a crash a log goes on where its last whole line ends; epochs trained again then stand in it twice, and
:func:`dorylus.observe.read_log.current` leaves out those that no longer count.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from dorylus.observe.jsonl import JsonlSink
from dorylus.observe.read_log import read_log
from dorylus.observe.sink import MemorySink, Record, Sink

__all__ = ["JsonlSink", "MemorySink", "Record", "RunLog", "Sink", "read_log"]


class RunLog:
    """Stamps records and hands them to every sink, in one order whatever thread they come from.

    ``started_s`` is the time already on the log of a run that goes on after a stop.
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
