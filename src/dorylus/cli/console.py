"""What commands show on stderr while they work: progress bars, where it is a terminal, and what a signal ended."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dorylus.errors import Terminated

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, Task, TaskID

    from dorylus.progress import ReportStage, StageProgress

ReportRows = Callable[[int, int], None]
DRAWN_AFTER_S = 2.0


@contextmanager
def progress_bar(
    what: str,
    unit: str,
    console: "Console | None" = None,
    clock: Callable[[], float] = time.monotonic,
    *,
    before_first: Callable[[], None] = lambda: None,
) -> Iterator[ReportRows]:
    """Yields a function that takes how much is done, and of how much; the bar is drawn once that takes two seconds.

    ``before_first`` is called before anything is drawn.
    """
    from rich.console import Console

    console, begin_s = console or Console(stderr=True), clock()
    bar = _bar(console, transient=True, clock=clock)
    task = bar.add_task(what, total=None, rate="", start=False)

    def tell(done: int, total: int) -> None:
        if not console.is_terminal or clock() - begin_s < DRAWN_AFTER_S:
            return
        if not bar.live.is_started:
            before_first()
            bar.start_task(task)
            bar.start()
        bar.update(task, completed=done, total=total)
        bar.update(task, rate=rate_of(bar.tasks[task], unit))

    try:
        yield tell
    finally:
        if bar.live.is_started:  # stop() of a bar that was not drawn would print a newline
            bar.stop()


@contextmanager
def stage_bars(console: "Console | None" = None) -> Iterator["ReportStage"]:
    """Yields a function that takes the progress of a stage; each stage has a bar of its own, which stays."""
    from rich.console import Console

    console = console or Console(stderr=True)
    with _bar(console, disable=not console.is_terminal) as bar:
        stages: dict[str, TaskID] = {}

        def tell(progress: "StageProgress") -> None:
            if progress.stage not in stages:
                stages[progress.stage] = bar.add_task(progress.stage, total=progress.total, rate="")
            task = stages[progress.stage]
            bar.update(task, completed=progress.done, total=progress.total)
            bar.update(task, rate=rate_of(bar.tasks[task], progress.unit))

        yield tell


def rate_of(task: "Task", unit: str) -> str:
    """How much is done a second: 12.3 MB/s, 12.3 M edges/s; rows are counted singly: 1,234,567 rows/s."""
    speed = task.finished_speed or task.speed
    if speed is None:
        return ""
    return (
        f"{speed:,.0f} rows/s" if unit == "rows" else f"{speed / 1e6:.1f} M{'B' if unit == 'bytes' else ' ' + unit}/s"
    )


def _bar(
    console: "Console", *, transient: bool = False, disable: bool = False, clock: Callable[[], float] | None = None
) -> "Progress":
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"))
    return Progress(
        *columns, TimeRemainingColumn(), console=console, transient=transient, disable=disable, get_time=clock
    )


@contextmanager
def resume_hint(run_dir: str | None) -> Iterator[None]:
    """Turns a signal during a run into a line on stderr and its exit code."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as end:
        saved = run_dir is not None and (Path(run_dir) / "run.toml").exists()
        how = f"continue with: dorylus resume {run_dir}" if saved else "nothing was saved"
        raise ended(end, f"; {how}") from None


@contextmanager
def say_nothing_written() -> Iterator[None]:
    """Turns a signal while a file or store is written, which appears whole or not at all, into a line and exit code."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as end:
        raise ended(end, ": nothing was written") from None


def ended(end: KeyboardInterrupt | Terminated, what: str = "") -> typer.Exit:
    """Prints what a signal ended, also on a terminal that may be closed; returns the exit code of the signal."""
    with suppress(OSError):
        typer.echo(f"{reason(end)}{what}", err=True)
    discard_unwritable_output()
    return typer.Exit(exit_code(end))


def discard_unwritable_output() -> None:
    """Sends output for a closed terminal or pipe to /dev/null.

    The interpreter flushes stdout as it exits, and would replace the exit code by 120 where that fails.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
            os.close(nothing)


def reason(end: KeyboardInterrupt | Terminated) -> str:
    """The reason for the end of a command: "interrupted", or the signal."""
    return f"stopped by {end.signal.name}" if isinstance(end, Terminated) else "interrupted"


def exit_code(end: KeyboardInterrupt | Terminated) -> int:
    """130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + end.signal if isinstance(end, Terminated) else 130
