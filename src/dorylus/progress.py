"""Stages: long passes over files, which tell how far they are."""

import threading
from collections.abc import Callable
from typing import TypeAlias

Tell: TypeAlias = Callable[[str, int, int], None]  # what is done, bytes of it that are, and all of them


def silent(stage: str, done: int, total: int) -> None:
    """Tells nobody."""


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
