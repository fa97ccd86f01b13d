"""What an ingest tells while it is at work."""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias


class Progress(NamedTuple):
    """How far a stage is; ``total`` is None where nobody knows."""

    stage: str
    done: int
    total: int | None
    unit: Literal["bytes", "edges", "rows"]


Tell: TypeAlias = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Tells nobody."""
