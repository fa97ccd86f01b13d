"""The bars of an ingest: one a stage, with the rate and the time left."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task, TaskID

    from dorylus.graph.ingest.progress import Progress as Told
    from dorylus.graph.ingest.progress import Tell


@contextmanager
def bars(console: "Console | None" = None) -> Iterator["Tell"]:
    """Draws bars on stderr for what is told, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = console or Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as drawn:
        stages: dict[str, TaskID] = {}

        def tell(progress: "Told") -> None:
            if progress.stage not in stages:
                stages[progress.stage] = drawn.add_task(progress.stage, total=progress.total, rate="")
            task = stages[progress.stage]
            drawn.update(task, completed=progress.done, total=progress.total)
            drawn.update(task, rate=rate_of(drawn.tasks[task], progress.unit))

        yield tell


def rate_of(task: "Task", unit: str) -> str:
    """How much of it is done a second: 12.3 M edges/s."""
    speed = task.finished_speed or task.speed
    return "" if speed is None else f"{speed / 1e6:.1f} M{'B' if unit == 'bytes' else ' ' + unit}/s"
