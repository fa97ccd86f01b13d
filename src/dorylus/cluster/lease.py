"""How long a server on another machine lives without hearing of its driver.

Ray ends the servers of a driver that is gone, but not those that it cannot reach at that moment: a node that is cut off
when a run ends, and comes back, would keep them for ever. So a driver renews the lease of its servers as long as it
lives, whatever else it does, and a server whose lease is over ends its own process. One that is still wanted is started
again by Ray, and goes on as after any other loss.
"""

import os
import threading
import time
from collections.abc import Callable

LEASE_S = 90.0
RENEW_S = 15.0
_CHECK_S = 5.0


def _end_process() -> None:
    os._exit(1)


class Lease:
    """A server's side: everything it is asked for renews it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, end: Callable[[], None] = _end_process) -> None:
        self._clock, self._end = clock, end
        self._heard_s = clock()

    def renew(self) -> None:
        """The driver is there."""
        self._heard_s = self._clock()

    def check(self) -> None:
        """End the process if the driver was not heard of for too long."""
        if self._clock() - self._heard_s > LEASE_S:
            self._end()

    def watch(self) -> None:
        """Check from now on, in a thread of its own."""
        threading.Thread(target=self._keep_checking, name="dorylus-lease", daemon=True).start()

    def _keep_checking(self) -> None:
        while True:
            time.sleep(_CHECK_S)
            self.check()


class Renewal:
    """A driver's side: renews until it is closed. ``renew`` must not wait for the servers."""

    def __init__(self, renew: Callable[[], None], every_s: float = RENEW_S) -> None:
        self._renew, self._every_s = renew, every_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_renewing, name="dorylus-renewal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Renew no longer."""
        self._closed.set()
        self._thread.join(RENEW_S)
        self._renew = lambda: None  # it holds the servers, which hold this: what they hold is free at once

    def _keep_renewing(self) -> None:
        while not self._closed.wait(self._every_s):
            self._renew()
