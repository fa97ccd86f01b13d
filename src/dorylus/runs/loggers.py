"""Loggers: readers of the run log that pass a run on to TensorBoard, MLflow or Weights & Biases while it goes on.

A step is an epoch: loss, seconds, dollars, memory, and the scores of its evaluation. Settings go first, figures of the
result last. A logger works in a thread of its own: a slow service does not hold up training, and one that fails is
reported once and then left alone. After a resume a logger gets the epochs that it lacks, and none twice.
"""

import math
import queue
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dorylus.cost import Bill
from dorylus.errors import ConfigError, DataError, DorylusError, given
from dorylus.extras import check_installed
from dorylus.lazy import lazy_names
from dorylus.runs.run_folder import RunFolder
from dorylus.runs.run_log import Record, current, read_log

EpochFigures = tuple[int, dict[str, float]]


@dataclass(frozen=True)
class LoggedRun:
    """What a logger starts from. ``run_id`` is its own name for a run that it has logged before, and
    ``logged_until`` the last step it may have been given then."""

    name: str
    settings: Mapping[str, Any]
    folder: Path | None = None
    resumed_from: int | None = None
    run_id: str | None = None
    logged_until: int = 0


class ExperimentLogger(Protocol):
    """One run in the program of a vendor. ``last_step`` is the last step that it has, ``run_id`` its name there."""

    last_step: int
    run_id: str

    def log(self, steps: Sequence[EpochFigures]) -> None:
        """Takes steps in order, each with its figures."""

    def summarise(self, figures: Mapping[str, Any]) -> None:
        """Takes the figures of the result."""

    def close(self, *, finished: bool) -> None:
        """Ends the run there; one that is not ``finished`` may be resumed."""


def check_loggers(names: Iterable[str]) -> None:
    """Refuses loggers whose packages are not installed."""
    for name in names:
        check_installed(given("log_to", name), name)


def open_loggers(run: Record, folder: RunFolder | None) -> "list[LoggerSink]":
    """The loggers that the first record of a run names, fed with the epochs in its folder that they lack."""
    names = run["config"]["log_to"]
    check_loggers(names)
    records = [] if folder is None or not names else _records(folder)
    with ExitStack() as opened:
        sinks = [opened.enter_context(closing(_open(name, run, folder, records))) for name in names]
        opened.pop_all()
    return sinks


def _open(name: str, run: Record, folder: RunFolder | None, records: list[dict[str, Any]]) -> "LoggerSink":
    known = {} if folder is None else folder.read_logger_ids()
    logged_run = LoggedRun(
        name=f"{run['model']['name']} on {run['graph']['name']}" if folder is None else folder.path.absolute().name,
        settings=flat_settings(run),
        folder=None if folder is None else folder.path,
        resumed_from=run["resumed_from"],
        run_id=known.get(name),
        logged_until=max((number for number, _ in _steps_of(records)), default=0) if name in known else 0,
    )
    try:
        logger: ExperimentLogger = _makers(f"open_{name}")(logged_run)
    except DorylusError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{given('log_to', name)}: it cannot begin a run ({_first_line(error)}). Mend that, or leave it out of "
            f"{given('log_to')}."
        ) from error
    sink = LoggerSink(name, logger)
    if folder is not None:
        folder.write_logger_ids(known | {name: logger.run_id})
    for record in current([*records, run])[:-1]:
        sink.write(record)
    return sink


_makers = lazy_names(
    "dorylus.runs", {"tensorboard": "open_tensorboard", "mlflow": "open_mlflow", "wandb": "open_wandb"}
)


def _records(folder: RunFolder) -> list[dict[str, Any]]:
    """The records of a run that is resumed; of a damaged log none: the run may go on with it."""
    if folder.log.exists():
        with suppress(DataError):
            return read_log(folder.log)
    return []


def flat_settings(run: Record) -> dict[str, Any]:
    """The settings, graph and model of a run as one flat table: ``lr``, ``optimizer_options.momentum``, ``graph.name``.

    Settings that are not given are left out.
    """
    tables = {"": run["config"], "graph.": run["graph"], "model.": run["model"]}
    return dict(_flat((f"{prefix}{name}", value) for prefix, table in tables.items() for name, value in table.items()))


def _flat(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for name, value in items:
        if isinstance(value, Mapping):
            yield from _flat((f"{name}.{key}", each) for key, each in value.items())
        elif isinstance(value, list | tuple):
            if value:
                yield name, ",".join(map(str, value))
        elif value is not None:
            yield name, value


@dataclass
class EpochSteps:
    """Puts the records of an epoch together to a step: the epoch's figures and, where one is due, its scores."""

    _every: int = 0
    _open: EpochFigures | None = None

    def add(self, record: Record) -> Iterator[EpochFigures]:
        """Yields the steps that are complete with this record."""
        match record["kind"]:
            case "run":
                self._every = record.get("config", {}).get("eval_every") or 0
            case "epoch":
                yield from self.rest()
                names = ("loss", "seconds", "usd", "memory_bytes")
                self._open = int(record["epoch"]), _numbers({name: record.get(name) for name in names})
                if not self._every or record["epoch"] % self._every:
                    yield from self.rest()
            case "evaluation":
                scores = {name: value for name, value in record.items() if name not in ("kind", "t", "epoch")}
                if self._open is not None and self._open[0] == record["epoch"]:
                    self._open[1].update(_numbers(scores))
                yield from self.rest()
            case "result":
                yield from self.rest()

    def rest(self) -> Iterator[EpochFigures]:
        """Yields a step whose evaluation has not come."""
        if self._open is not None:
            yield self._open
            self._open = None


def _steps_of(records: Iterable[Record]) -> Iterator[EpochFigures]:
    steps = EpochSteps()
    for record in records:
        yield from steps.add(record)


def _numbers(figures: Mapping[str, Any]) -> dict[str, float]:
    plain = {name: value for name, value in figures.items() if isinstance(value, int | float)}
    return {name: float(value) for name, value in plain.items() if math.isfinite(value)}


def closing_figures(result: Record) -> dict[str, Any]:
    """The figures of a result that loggers keep: scores, time, memory, dollars and the best epoch, by name."""
    scores = {name: value for name, value in result.items() if name.startswith(("train_", "val_", "test_"))}
    names = ("epochs", "final_loss", "seconds", "seconds_per_epoch", "peak_memory_bytes", "best_epoch", "best_score")
    figures = {**scores, **{name: result.get(name) for name in (*names, "stopped", "keep")}}
    if bill := result.get("bill"):
        figures["usd"] = float(Bill.from_dict(bill).total())
    return {name: value for name, value in figures.items() if value is not None}


MOST_WAITING = 10_000  # steps
MOST_AT_ONCE = 200  # of those that are given to a logger in one call
CLOSE_S = 30.0


class LoggerWarning(UserWarning):
    """A logger has failed; the run goes on without it."""


@dataclass
class LoggerSink:
    """A sink of the run log that hands steps to a logger in another thread, those first that it has not got."""

    name: str
    logger: ExperimentLogger
    close_s: float = CLOSE_S
    _steps: EpochSteps = field(default_factory=EpochSteps)
    _failure: str | None = None
    _is_reported: bool = False
    _finished: bool = False

    def __post_init__(self) -> None:
        self._waiting: queue.Queue[EpochFigures | Mapping[str, Any] | None] = queue.Queue(MOST_WAITING)
        self._given = self.logger.last_step
        self._thread = threading.Thread(target=self._work, name=f"dorylus-{self.name}", daemon=True)
        self._thread.start()

    def write(self, record: Record) -> None:
        """Takes a record of the run log."""
        for step in self._steps.add(record):
            if step[0] > self._given:
                self._given = step[0]
                self._put(step)
        self._finished = record["kind"] == "result"
        if self._finished:
            self._put(closing_figures(record))
        self._report()

    def close(self) -> None:
        """Waits until the logger has taken everything, for a while, and ends its run; a second call does nothing."""
        self._put(None)
        self._thread.join(self.close_s)
        if self._thread.is_alive():
            self._fail(f"it has not taken the last epochs within {self.close_s:g} s")
        self._report()

    def _put(self, item: EpochFigures | Mapping[str, Any] | None) -> None:
        if self._failure is None:
            try:
                self._waiting.put_nowait(item)
            except queue.Full:
                self._fail(f"it is {MOST_WAITING:,} epochs behind")

    def _work(self) -> None:
        try:
            while self._failure is None and self._pass_on(self._next()):
                pass
            self.logger.close(finished=self._finished)
        except Exception as error:
            self._fail(_first_line(error))
            with suppress(Exception):  # it has failed already
                self.logger.close(finished=False)

    def _next(self) -> list[EpochFigures | Mapping[str, Any] | None]:
        """What waits, at least one item."""
        items = [self._waiting.get()]
        with suppress(queue.Empty):
            while len(items) < MOST_AT_ONCE:
                items.append(self._waiting.get_nowait())
        return items

    def _pass_on(self, items: list[EpochFigures | Mapping[str, Any] | None]) -> bool:
        """Gives items to the logger; False at the end of the run."""
        self.logger.log([each for each in items if isinstance(each, tuple)])
        for figures in (each for each in items if isinstance(each, Mapping)):
            self.logger.summarise(figures)
        return None not in items

    def _fail(self, why: str) -> None:
        self._failure = self._failure or why

    def _report(self) -> None:
        """Warns of a failure, once, in the thread of the run."""
        if self._failure is not None and not self._is_reported:
            self._is_reported = True
            text = f"the logger {self.name} has failed ({self._failure}): the run goes on without it."
            warnings.warn(text, LoggerWarning, stacklevel=2)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
