"""What an ingest tells while it is at work."""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias


class IngestProgress(NamedTuple):
    """How far a stage is; ``total`` is None where nobody knows."""

    stage: str
    done: int
    total: int | None
    unit: Literal["bytes", "edges", "rows"]


Tell: TypeAlias = Callable[[IngestProgress], None]


def silent(progress: IngestProgress) -> None:
    """Tells nobody."""
