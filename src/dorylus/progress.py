"""Progress of long passes: reports of a stage to the caller, which may draw a bar or write a record."""

import threading
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias


class StageProgress(NamedTuple):
    """How much of a stage is done; ``total`` is None where it is not known."""

    stage: str
    done: int
    total: int | None
    unit: Literal["bytes", "edges", "rows"] = "bytes"


ReportStage: TypeAlias = Callable[[StageProgress], None]


def silent(progress: StageProgress) -> None:
    """Reports nothing."""


class ProgressStage:
    """Counts the bytes of a pass that are done and reports each step; any thread may add to it."""

    def __init__(self, name: str, total: int, tell: ReportStage = silent) -> None:
        self._name, self._total, self._tell, self._done = name, total, tell, 0
        self._lock = threading.Lock()
        tell(StageProgress(name, 0, total))

    def add(self, num_bytes: int) -> None:
        """Count ``num_bytes`` more as done."""
        with self._lock:
            self._done += num_bytes
            self._tell(StageProgress(self._name, self._done, self._total))
