"""The records of a run: its folder, its log and its accounts."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, Self

from dorylus import process_memory
from dorylus.config import RunConfig
from dorylus.graph import Graph
from dorylus.memory import RunLimits
from dorylus.progress import StageProgress
from dorylus.runs import (
    LEDGER,
    JsonlSink,
    LoggerSink,
    RunFolder,
    RunLock,
    RunLog,
    RunSpec,
    Sink,
    TrainedOn,
    check_free,
    last_time,
    make_folder,
    open_loggers,
    read_ledger,
)
from dorylus.runtime import EpochReport, PoolNews
from dorylus.saga import Program
from dorylus.training.accounts import Accounts


class RunRecords:
    """The folder, the log and the accounts of one run, which this process holds until :meth:`close`.

    A run without run_dir has no folder. The log starts with :meth:`start_log`, once the run is set up.
    """

    log: RunLog
    set_up: "SetupProgress"

    def __init__(
        self,
        config: RunConfig,
        accounts: Accounts,
        held: ExitStack,
        *,
        folder: RunFolder | None = None,
        lock: RunLock | None = None,
        is_new: bool = True,
        is_recut: bool = False,
    ) -> None:
        self.config, self.accounts, self.folder, self.is_new, self.is_recut = config, accounts, folder, is_new, is_recut
        self._held, self._lock = held, lock
        self._new_folders: list[Path] = []
        self._loggers: list[LoggerSink] = []

    @classmethod
    def new(cls, config: RunConfig, spec: RunSpec | None = None) -> Self:
        """The records of a new run, whose folder is locked if it has one.

        The bill includes the usage of a run that was killed in that folder during its set-up.
        """
        since_s = None if spec is None else spec.take_loading_since_s()
        records = cls(config, Accounts(config, since_s=since_s), ExitStack())
        if config.run_dir is not None:
            with records.undone_on_error():
                run_dir = Path(config.run_dir)
                records._new_folders = make_folder(run_dir)
                records._lock = RunLock(run_dir)
                records._held.callback(records._lock.release)
                check_free(run_dir)  # another process may have finished a run there just now
                ledger = run_dir / LEDGER
                records._held.callback(records.accounts.close)
                records.accounts.keep_ledger(ledger, read_ledger(ledger) if ledger.is_file() else None)
        return records

    @classmethod
    def stopped(cls, run_dir: str | PathLike[str], settings: Mapping[str, Any]) -> Self:
        """The records of a run that was stopped; ``settings`` may change how the work is divided."""
        began_s = time.perf_counter()
        RunFolder.open(run_dir, settings)  # refuses a folder that holds no run before anything is written to it
        with ExitStack() as held:
            lock = RunLock(Path(run_dir))
            held.callback(lock.release)
            folder = RunFolder.open(run_dir, settings)
            with folder.spelling():
                accounts = Accounts(folder.config, since_s=began_s)
            held.callback(accounts.close)
            accounts.keep_ledger(folder.ledger, folder.read_used())
            folder.sweep()
            return cls(
                folder.config, accounts, held.pop_all(), folder=folder, lock=lock, is_new=False, is_recut=bool(settings)
            )

    def spelling(self) -> AbstractContextManager[None]:
        """Errors raised within spell the settings of a stopped run as its run.toml has them."""
        return nullcontext() if self.folder is None else self.folder.spelling()

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """During set-up: on an error, release everything that is held.

        A new run that is refused leaves nothing. A run ended by a signal leaves its usage, as a killed one does.
        """
        try:
            with self.spelling():
                yield
        except BaseException as error:
            if self.is_new and isinstance(error, Exception | KeyboardInterrupt):
                self.accounts.discard_usage()
                if self.folder is not None:
                    self.folder.discard()
            self._held.close()
            self._remove_new_folders()
            raise

    def write_folder(self, spec: RunSpec, config: RunConfig, trained_on: TrainedOn) -> None:
        """Write the folder of a new run, with every setting resolved."""
        assert self.config.run_dir is not None
        self.folder = RunFolder.create(self.config.run_dir, spec, config, trained_on.to_dict())
        self.folder.sweep()

    def note_origin(self, graph: Graph, config: RunConfig) -> None:
        """Note where the graph of a stopped run is now, if it is known how it is made again."""
        if self.folder is not None and graph.origin is not None and graph.origin != self.folder.spec.graph:
            self.folder = replace(self.folder.with_config(config), spec=replace(self.folder.spec, graph=graph.origin))
            self.folder.write()

    def start_log(self, sinks: Iterable[Sink], resumed_from: int | None, run: Mapping[str, Any]) -> None:
        """Start the run log with the record of the run, and the loggers with what they lack."""
        to_file, started_s = [], 0.0
        run_dir = None if self.folder is None else str(self.folder.path)
        began = datetime.now().astimezone().isoformat(timespec="seconds")
        run = {**run, "began": began, "resumed_from": resumed_from, "run_dir": run_dir}
        self._loggers = open_loggers({"kind": "run", **run}, self.folder)
        for each in self._loggers:
            self._held.callback(each.close)
        if self.folder is not None:
            if resumed_from is not None:
                started_s = last_time(self.folder.log)
            to_file = [JsonlSink(self.folder.log, append=resumed_from is not None)]
        self.log = RunLog([*to_file, *self._loggers, *sinks], started_s=started_s)
        self.set_up = SetupProgress(self.log.write)
        self.log.write("run", **run)
        if self._lock is not None and not self._lock.by_kernel:
            self.log.write("unlocked", run_dir=run_dir)

    def note_servers(self, what: str, **details: Any) -> None:
        """Log what happens to the servers."""
        if what == "session":
            self.accounts.set_machines(len({host for places in details["servers"].values() for host, _ in places}))
        self.log.write("cluster", what=what, **details)

    def note_pool(self, what: str, **details: Any) -> None:
        """Log what a pool decides."""
        if what == "program":
            self.accounts.exported(details["seconds"])
        self.log.write("pool", what=what, **details)

    def pool_news(self, news: PoolNews) -> None:
        """Log and book what the pool of a graph server in another process did."""
        for what, details in news.notes:
            self.note_pool(what, **details)
        for invocation in news.invoked:
            self.accounts.invoked(invocation)

    def note_epoch(self, report: EpochReport, epoch: int, usd: float) -> None:
        """Log an epoch, counted from 1, which is booked, with what the run had cost by its end; and its tasks, where
        it is traced.
        """
        self.log.write("epoch", **epoch_record(report, epoch, usd))
        self.accounts.write_ledger()
        if is_traced(epoch, len(report.spans), self.config.trace_epochs):
            self.log.write("spans", epoch=epoch, spans=report.rows())

    def keep_lock(self) -> None:
        """Renew the lock of the folder, if the run has one."""
        if self._lock is not None:
            self._lock.keep()

    def discard(self) -> None:
        """Remove the folder of a new run that could not begin, so that the next attempt may use it."""
        self.accounts.discard_usage()
        if self.folder is not None:
            self.folder.discard()
        self.close()
        self._remove_new_folders()

    def close(self) -> None:
        """End the loggers and the log, close the ledger and release the lock."""
        with self._held, closing(self.log):
            for each in self._loggers:  # before the log: it gets their failures
                each.close()

    def _remove_new_folders(self) -> None:
        """Remove the folders that were made for a new run, unless they hold files."""
        for folder in self._new_folders:
            with suppress(OSError):
                folder.rmdir()


def run_record(graph: Graph, program: Program, made: Mapping[str, Any], config: RunConfig) -> dict[str, Any]:
    """The settings, graph and model of a run; ``made`` are the model's name and, of a builder's, all its options."""
    return {
        "config": config.to_dict(),
        "graph": {
            "name": graph.name,
            "vertices": graph.num_vertices,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "classes": graph.num_classes,
            "multilabel": graph.multilabel,
        },
        "model": {**made, "parameters": sum(p.numel() for p in program.parameters())},
    }


def epoch_record(report: EpochReport, epoch: int, usd: float) -> dict[str, Any]:
    """The record of an epoch, counted from 1, with the cost of the run by its end."""
    resident, mapped = process_memory.resident_and_mapped_bytes()
    record = {
        "epoch": epoch,
        "loss": report.loss,
        "seconds": report.seconds,
        "memory_bytes": resident,
        "mapped_bytes": mapped,
        "tasks": report.seconds_by_kind(),
        "busy": report.busy_seconds,
        "traffic": report.traffic,
        "ages": report.ages,
        "waits": report.waits,
        "usd": usd,
    }
    if report.moved is not None:
        record["files"] = {"read_bytes": report.moved.read, "written_bytes": report.moved.written}
    if report.servers:
        record["servers"] = [each._asdict() for each in report.servers]
    return record


SAMPLED_TASKS = 10_000  # an epoch of more tasks is not sampled


def is_traced(epoch: int, num_tasks: int, trace_epochs: int) -> bool:
    """Whether an epoch's tasks go into the log: those of the first epochs, then of each epoch that is a power of two.

    So a timeline shows the run later on, too, and a log of a million epochs holds twenty samples.
    """
    is_sample = epoch & (epoch - 1) == 0 and num_tasks <= SAMPLED_TASKS
    return trace_epochs > 0 and (epoch <= trace_epochs or is_sample)


def memory_record(limits: RunLimits) -> dict[str, Any]:
    """How a run stays within its memory limit: the predicted bytes in memory and in files."""
    figures = limits.figures
    return {
        "peak_bytes": limits.peak,
        "resident": dict(figures.resident),
        "on_disk": dict(figures.on_disk),
        "read_bytes": figures.read,
        "written_bytes": figures.written,
    }


SILENT_S = 2.0  # a set-up that ends sooner is not reported
EVERY_S = 1.0


class SetupProgress:
    """Receives the progress of the set-up, from any thread, and writes a record of it at most every EVERY_S."""

    def __init__(self, write: Callable[..., None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._lock = threading.Lock()
        self._stage = ""
        self._began_s = self._stage_began_s = 0.0
        self._written_s: float | None = None

    def __call__(self, progress: StageProgress) -> None:
        """Write a record of the stage's progress, unless the last one is recent."""
        stage, done, total, _ = progress
        with self._lock:
            now = self._clock()
            if not self._stage:
                self._began_s = now
            if stage != self._stage:
                self._stage, self._stage_began_s = stage, now
            if now - self._began_s < SILENT_S or (self._written_s is not None and now - self._written_s < EVERY_S):
                return
            self._written_s = now
            spent_s = round(now - self._stage_began_s, 3)
            self._write("set_up", stage=stage, done_bytes=done, total_bytes=total, seconds=spent_s)

    def finished(self) -> None:
        """End the set-up, if any of it was reported."""
        with self._lock:
            if self._written_s is not None:
                self._write("set_up", stage=None, seconds=round(self._clock() - self._began_s, 3))
            self._stage, self._written_s = "", None
