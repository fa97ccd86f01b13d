"""A bar for work that is mostly over before one is worth looking at."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task

Tell = Callable[[int, int], None]
SHOWN_AFTER_S = 2.0


@contextmanager
def progress_bar(
    what: str,
    rate_of: Callable[["Task"], str],
    console: "Console | None" = None,
    clock: Callable[[], float] = time.monotonic,
    *,
    at_first: Callable[[], None] = lambda: None,
) -> Iterator[Tell]:
    """Draws on stderr, where that is a terminal, and only if it has taken more than two seconds.

    What it gives is called with how much is done, and of how much; ``at_first`` is called before anything is drawn.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console, begin = console or Console(stderr=True), clock()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"))
    shown = Progress(*columns, TimeRemainingColumn(), console=console, transient=True, get_time=clock)
    task = shown.add_task(what, total=None, rate="", start=False)

    def tell(done: int, total: int) -> None:
        if not console.is_terminal or clock() - begin < SHOWN_AFTER_S:
            return
        if not shown.live.is_started:
            at_first()
            shown.start_task(task)
            shown.start()
        shown.update(task, completed=done, total=total)
        shown.update(task, rate=rate_of(shown.tasks[task]))

    try:
        yield tell
    finally:
        if shown.live.is_started:  # else it would end a line that never began
            shown.stop()
