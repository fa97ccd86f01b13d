"""The set-up of a run under a memory limit, in its run log: on a large graph it takes minutes."""

import threading
import time
from collections.abc import Callable

SILENT_S = 2.0  # set-up that is over by then is not worth a word
EVERY_S = 1.0


class SettingUp:
    """Hears how far set-up is, from any thread, and writes a record of it now and then."""

    def __init__(self, write: Callable[..., None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._lock = threading.Lock()
        self._stage = ""
        self._began_s = self._stage_began_s = 0.0
        self._told_s: float | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        """A stage is so many bytes far, of all of them."""
        with self._lock:
            now = self._clock()
            if not self._stage:
                self._began_s = now
            if stage != self._stage:
                self._stage, self._stage_began_s = stage, now
            if now - self._began_s < SILENT_S or (self._told_s is not None and now - self._told_s < EVERY_S):
                return
            self._told_s = now
            spent_s = round(now - self._stage_began_s, 3)
            self._write("set_up", stage=stage, done_bytes=done, total_bytes=total, seconds=spent_s)

    def finished(self) -> None:
        """Set-up is over, if any was told of."""
        with self._lock:
            if self._told_s is not None:
                self._write("set_up", stage=None, seconds=round(self._clock() - self._began_s, 3))
            self._stage, self._told_s = "", None
