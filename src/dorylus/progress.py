"""Stages: long passes over files that report their progress."""

import threading
from collections.abc import Callable
from typing import TypeAlias

Tell: TypeAlias = Callable[[str, int, int], None]  # (stage, bytes done, bytes in all)


def silent(stage: str, done: int, total: int) -> None:
    """Reports nothing."""


class ProgressStage:
    """How far a pass over so many bytes is; any thread may add to it."""

    def __init__(self, name: str, total: int, tell: Tell = silent) -> None:
        self._name, self._total, self._tell, self._done = name, total, tell, 0
        self._lock = threading.Lock()
        tell(name, 0, total)

    def add(self, num_bytes: int) -> None:
        """So much more is done."""
        with self._lock:
            self._done += num_bytes
            self._tell(self._name, self._done, self._total)
