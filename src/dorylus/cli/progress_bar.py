"""Progress bars on stderr, where that is a terminal: one for a pass, or one for each stage of a pass."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

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
