"""The bar of a prediction: a spinner while the model is at work, then rows written, their rate and the time left."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task

    from dorylus.training.prediction_file import Tell

SHOWN_AFTER_S = 2.0


@contextmanager
def prediction_bar(
    what: str, console: "Console | None" = None, clock: Callable[[], float] = time.monotonic
) -> Iterator["Tell"]:
    """Draws on stderr, where that is a terminal; the bar only if all has taken more than two seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console, begin = console or Console(stderr=True), clock()
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"))
    shown = Progress(*columns, TimeRemainingColumn(), console=console, transient=True, get_time=clock)
    task = shown.add_task(f"writing {what}", total=None, rate="", start=False)
    with console.status(f"computing {what} of every vertex") as status:

        def tell(done: int, total: int) -> None:
            if clock() - begin < SHOWN_AFTER_S:
                return
            if not shown.live.is_started:
                status.stop()  # a terminal has room for one of them
                shown.start_task(task)
                shown.start()
            shown.update(task, completed=done, total=total)
            shown.update(task, rate=rate_of(shown.tasks[task]))

        try:
            yield tell
        finally:
            shown.stop()


def rate_of(task: "Task") -> str:
    """How many rows are written a second: 1,234,567 rows/s."""
    speed = task.finished_speed or task.speed
    return "" if speed is None else f"{speed:,.0f} rows/s"
