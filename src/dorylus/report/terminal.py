"""A run at the terminal or in a notebook: progress while it runs, a table when it has ended.

``TerminalProgress`` is a sink of the run log and reads nothing else. On a terminal it draws a bar; into a file or a
pipe it prints a line now and then. Events that a user would wait for or wonder about get a line each (:func:`notice`).
"""

import errno
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.status import Status

from dorylus import units
from dorylus.cost import dollars
from dorylus.errors import ConfigError, given
from dorylus.report.closing_table import closing_table, cluster, pool_line
from dorylus.report.summary import Summary
from dorylus.runs import Record, Sink, check_sinks


def notice(record: Record) -> str | None:
    """The line that a record is worth; most are worth none."""
    known = {
        "synchronous": _synchronous,
        "pool": pool_line,
        "cluster": _cluster,
        "memory": _memory,
        "set_up": _set_up,
        "unlocked": _unlocked,
    }
    line_of = known.get(record["kind"])
    return None if line_of is None else line_of(record)


def _synchronous(record: Record) -> str:
    """Reports that an asynchronous run becomes synchronous, and why."""
    score = units.percent(record.get("score"))
    return (
        f"epoch {record['epoch']}: validation is at {score}, close to the target; epochs are synchronous from here on"
    )


def _memory(record: Record) -> str:
    """How a memory limit is kept."""
    held, files = units.size(record["peak_bytes"]), units.size(sum(record["on_disk"].values()))
    if not sum(record["on_disk"].values()) and not record["read_bytes"]:
        return f"memory: about {held} at the worst moment, and nothing in files"
    moved = f"reads {units.size(record['read_bytes'])} and writes {units.size(record['written_bytes'])} of them"
    return f"memory: about {held} at the worst moment, {files} in scratch files; an epoch {moved}"


def _unlocked(record: Record) -> str:
    """Warns that a process on another machine can write to the same run."""
    return (
        f"the file system of {record['run_dir']} has no locks: nothing stops a process on another machine from writing "
        "to this run. Let one process at a time train or resume it."
    )


def _set_up(record: Record) -> str | None:
    """Reports the end of the set-up; its stages have a bar."""
    return None if record.get("stage") else f"set up in {units.seconds(record['seconds'])}"


def set_up_line(record: Record) -> str:
    """How far a stage of the set-up is: what is done, its rate and the time left."""
    spent_s, done, total = record["seconds"], record["done_bytes"], record["total_bytes"]
    if not spent_s or not done:
        return str(record["stage"])
    rate = done / spent_s
    left_s = (total - done) / rate
    left = f"{units.seconds(left_s)} left" if left_s >= 1 else "<1 s left"
    return f"{record['stage']}  {units.size(rate)}/s  {left}"


def _cluster(record: Record) -> str | None:
    """Reports where servers are, which were lost, and when the run continues."""
    match record.get("what"):
        case "session":
            hosts = sorted({host for host, _ in (record.get("servers") or {}).get("graph", ())})
            return f"graph servers are on {', '.join(hosts)}" if record.get("session") == 1 and hosts else None
        case "fault":
            return f"after epoch {record.get('epoch')}: {record.get('error')} Waiting for all servers to be back."
        case "recovered":
            took = units.seconds(record.get("seconds") or 0.0)
            return f"all servers are back after {took}; going on after epoch {record.get('epoch')}"
        case "straggler":
            late = ", ".join(map(str, record.get("servers") or ()))
            return f"a task of graph server {late} goes on after its session has ended; its result will be dropped"
        case "shrunk":
            return f"servers did not come back: going on with {record.get('servers')} after epoch {record.get('epoch')}"
        case _:
            return None


BAR_EVERY_S, NOTEBOOK_EVERY_S = 0.05, 0.25
LINES_PER_RUN = 10
LINE_EVERY_S = 30.0


@contextmanager
def shown_progress(progress: bool | None, sinks: Iterable[Sink]) -> Iterator[Iterable[Sink]]:
    """The sinks of a run in Python, with one for its progress: in a notebook, or on stderr where that is a terminal.

    ``progress``: False shows nothing, True shows lines also where stderr is no terminal.
    """
    if progress not in (None, True, False):
        raise ConfigError(
            f"{given('progress', progress)}, but {given('progress')} is True, False or None, where a terminal or "
            f"notebook decides: use {given('progress', True)}."
        )
    display, console = notebook_display(), Console(stderr=True)
    if progress is False or (progress is None and display is None and not console.is_terminal):
        yield sinks
        return
    view = TerminalProgress(console, table=False) if display is None else NotebookProgress(display)
    with closing(view):
        view.wait("laying out the graph")
        yield [*check_sinks(sinks), view]


class TerminalProgress:
    """Shows a run as it goes on, and its closing table when it has ended; ``progress=False`` shows the table alone."""

    def __init__(self, console: Console | None = None, *, progress: bool = True, table: bool = True) -> None:
        self.console = console or Console()
        self.summary = Summary()
        self._table = table
        self._view: _Bar | _Lines | None = None
        if progress:
            self._view = _Bar(self.console) if self.console.is_terminal else _Lines(self.console)

    def wait(self, what: str) -> None:
        """Shows what is being done before the first record: a large graph takes long to load."""
        if self._view is not None:
            self._view.wait(what)

    def write(self, record: Record) -> None:
        """Takes a record and updates the bar, or prints a line."""
        self.summary.add(record)
        with self._unless_gone():
            if self._view is not None:
                self._view.show(record, self.summary)
            if record["kind"] == "result":
                self.close()
                if self._table:
                    self.console.print(closing_table(self.summary))

    def close(self) -> None:
        """Releases the terminal."""
        with self._unless_gone():
            if self._view is not None:
                self._view.close()

    @contextmanager
    def _unless_gone(self) -> Iterator[None]:
        """Shows nothing more on a terminal that was closed: the run goes on, and is saved, without it."""
        try:
            yield
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._view, self.console = None, Console(quiet=True)


class NotebookProgress:
    """One line under a notebook's cell, which changes as the run goes on: plain text, which every front end shows.

    ``display`` is IPython's function of that name.
    """

    def __init__(self, display: Callable[..., Any]) -> None:
        self.summary = Summary()
        self._display, self._handle = display, None
        self._text, self._shown_s = "", -math.inf

    def wait(self, what: str) -> None:
        """Says what is being done before the first record comes."""
        self._show(f"{what} ...")

    def write(self, record: Record) -> None:
        """Takes a record, and changes the line a few times a second."""
        self.summary.add(record)
        if self.summary.epoch:
            total = f"/{self.summary.num_epochs}" if self.summary.num_epochs else ""
            self._text = f"epoch {self.summary.epoch}{total}  " + "  ".join(figures(self.summary).values())
        elif record["kind"] == "run":
            self._text = opening_line(self.summary)
        if record["kind"] == "result" or record["t"] - self._shown_s >= NOTEBOOK_EVERY_S:
            self._shown_s = record["t"]
            self._show(self._text)

    def close(self) -> None:
        """Leaves the last line."""

    def _show(self, text: str) -> None:
        data = {"text/plain": text}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def notebook_display() -> Callable[..., Any] | None:
    """IPython's ``display`` where this process is the kernel of a notebook, else None. It imports nothing."""
    ipython, display = sys.modules.get("IPython"), sys.modules.get("IPython.display")
    shell = None if ipython is None or display is None else ipython.get_ipython()
    return None if display is None or getattr(shell, "kernel", None) is None else display.display


class _Lines:
    """A line at the first epoch, every tenth of the epochs or half a minute, and the last."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_epoch: int | None = None
        self._last_t = 0.0

    def wait(self, what: str) -> None:
        pass  # no user waits before a file or a pipe

    def show(self, record: Record, summary: Summary) -> None:
        if record["kind"] == "run":
            self._print(opening_line(summary))
        elif line := notice(record):
            self._print(line)
        elif record["kind"] == "set_up" and record["t"] - self._last_t >= LINE_EVERY_S:
            self._last_t = record["t"]
            done = units.percent(record["done_bytes"] / max(1, record["total_bytes"]), 0)
            self._print(f"set-up: {set_up_line(record)} ({done})")
        elif record["kind"] == "epoch" and self._is_time(record, summary):
            self._last_epoch, self._last_t = summary.epoch, record.get("t", 0.0)
            total = f"/{summary.num_epochs}" if summary.num_epochs else ""
            self._print(f"epoch {summary.epoch}{total}  " + "  ".join(figures(summary, dated=True).values()))

    def _is_time(self, record: Record, summary: Summary) -> bool:
        if self._last_epoch is None or summary.epoch == summary.num_epochs:
            return True
        step = max(1, (summary.num_epochs or 100) // LINES_PER_RUN)
        return summary.epoch - self._last_epoch >= step or record.get("t", 0.0) - self._last_t >= LINE_EVERY_S

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        pass


class _Bar:
    """A bar with epoch rate, time left, loss, validation score, memory and dollars."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = [BarColumn(bar_width=None), TextColumn("{task.description}", markup=False)]
        self._progress = Progress(*columns, console=console, transient=True, expand=True)
        self._task: Any = None
        self._set_up: Any = None
        self._updated_s = 0.0
        self._status: Status | None = None

    def wait(self, what: str) -> None:
        self._stop_waiting()
        self._status = self._console.status(what)
        self._status.start()

    def _stop_waiting(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def show(self, record: Record, summary: Summary) -> None:
        self._stop_waiting()
        self._show_set_up(record)
        if record["kind"] == "run":
            self._console.print(opening_line(summary), markup=False, highlight=False)
            self._task = self._progress.add_task("", total=summary.num_epochs, completed=summary.epoch)
            self._progress.start()
        elif line := notice(record):
            self._console.print(line, markup=False, highlight=False)
        elif record["kind"] in ("epoch", "evaluation") and self._task is not None:
            since_s = record.get("t", 0.0) - self._updated_s
            if 0 < since_s < BAR_EVERY_S and summary.epoch != summary.num_epochs:
                return  # figures of short epochs cost more than they are worth
            self._updated_s = record.get("t", 0.0)
            total = f"/{summary.num_epochs}" if summary.num_epochs else ""
            text = f"{summary.epoch}{total}  " + "  ".join(figures(summary).values())
            self._progress.update(self._task, completed=summary.epoch, description=text)

    def _show_set_up(self, record: Record) -> None:
        """A bar above that of the epochs, for as long as there are none."""
        if record["kind"] == "set_up" and record.get("stage"):
            if self._set_up is None:
                self._set_up = self._progress.add_task("")
            progress = {"completed": record["done_bytes"], "total": max(1, record["total_bytes"])}
            self._progress.update(self._set_up, description=set_up_line(record), **progress)
        elif self._set_up is not None:
            self._progress.remove_task(self._set_up)
            self._set_up = None

    def close(self) -> None:
        self._stop_waiting()
        self._progress.stop()


def opening_line(summary: Summary) -> str:
    """A line with the model and the graph."""
    graph, model = summary.graph, summary.model
    parts = [f"{graph[name]:,} {name}" for name in ("vertices", "edges", "features", "classes") if name in graph]
    what = f"{model.get('name', 'model')} on {graph.get('name', 'graph')}"
    known = f" ({', '.join(parts)})" if parts else ""
    parameters = f", {model['parameters']:,} parameters" if "parameters" in model else ""
    servers = f", {where}" if (where := cluster(summary)) else ""
    return f"{what}{known}{parameters}{servers}{_how_far(summary)}"


def _how_far(summary: Summary) -> str:
    if summary.num_epochs is not None and summary.epoch >= summary.num_epochs > 0:
        return f", whose {summary.num_epochs} epochs are done"
    return f", going on after epoch {summary.epoch}" if summary.epoch else ""


def figures(summary: Summary, *, dated: bool = False) -> dict[str, str]:
    """The current figures, by name, in the order of the line; ``dated`` adds the epoch of an older score."""
    # Rate and time left are of one figure, or they contradict each other where epochs are short.
    epoch_s = summary.recent_epoch_seconds or summary.median_epoch_seconds
    texts = {"loss": f"loss {units.number(summary.loss)}"}
    if (score := _validation_score(summary)) is not None:
        texts["val"] = score + (_age(summary) if dated else "")
    if epoch_s:
        texts["rate"] = f"{units.number(1 / epoch_s, 3)} epochs/s" if epoch_s < 1 else f"{units.seconds(epoch_s)}/epoch"
    if (left_s := summary.seconds_left) is not None:
        texts["left"] = f"{units.seconds(left_s)} left" if left_s >= 1 else "<1 s left"
    if summary.memory_bytes:
        texts["memory"] = units.size(summary.memory_bytes)
    if summary.usd is not None:
        texts["usd"] = dollars(summary.usd)
    return texts


def _validation_score(summary: Summary) -> str | None:
    name, word = ("val_micro_f1", "val micro F1") if summary.multilabel else ("val_accuracy", "val")
    score = summary.evaluation.get(name)
    return None if score is None else f"{word} {units.percent(score)}"


def _age(summary: Summary) -> str:
    epoch = summary.evaluation.get("epoch", summary.epoch)
    return f" (epoch {epoch})" if epoch < summary.epoch else ""
