"""The bar of a prediction: a spinner while the model is at work, then rows written, their rate and the time left."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dorylus.cli.late_bar import late_bar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task

    from dorylus.training.prediction_file import Tell


@contextmanager
def prediction_bar(
    what: str, console: "Console | None" = None, clock: Callable[[], float] = time.monotonic
) -> Iterator["Tell"]:
    """Draws on stderr, where that is a terminal; the bar only if all has taken more than two seconds."""
    from rich.console import Console

    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    with (
        console.status(f"computing {what} of every vertex") as status,
        # A terminal has room for one of them.
        late_bar(f"writing {what}", rate_of, console, clock, at_first=status.stop) as tell,
    ):
        yield tell


def rate_of(task: "Task") -> str:
    """How many rows are written a second: 1,234,567 rows/s."""
    speed = task.finished_speed or task.speed
    return "" if speed is None else f"{speed:,.0f} rows/s"
