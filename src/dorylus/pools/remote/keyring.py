"""The keys that invocations bring along: renewed well before they end, so that none ends under a task."""

import threading
import time
from collections.abc import Callable
from typing import Any

from dorylus.wire.keys import ClientKeys, RunKeys


class Keyring:
    """One client's keys for all functions of a run; past half of their lifetime, invocations bring new ones."""

    def __init__(self, keys: RunKeys, lifetime_s: float, clock: Callable[[], float] = time.time) -> None:
        self._keys, self._lifetime_s, self._clock = keys, lifetime_s, clock
        self._lock = threading.Lock()
        self._current: ClientKeys | None = None

    def header(self) -> dict[str, Any]:
        """Keys that open the ports for at least half of a lifetime, for the header of an invocation."""
        with self._lock:
            if self._current is None or self._current.expires_at - self._clock() < self._lifetime_s / 2:
                self._current = self._keys.client(self._lifetime_s)
            return self._current.to_header()
