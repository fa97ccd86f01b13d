"""A pool that answers late: remote dense tasks as a graph server sees them, without a network.

The work is done at once, in the thread that submits it; the answer is delayed by `delay_s`. No core
is busy meanwhile, as with a remote function.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count

from dorylus.pipeline import Task
from dorylus.saga import dense
from dorylus.saga.dense import Call, Reply


class LatePool:
    """Runs each call where it is submitted, and answers after a delay."""

    def __init__(self, delay_s: Callable[[Task], float]):
        self._delay_s = delay_s
        self._due: list[tuple[float, int, Callable[[Reply], None], Reply]] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._closed = False
        self._postman = threading.Thread(target=self._deliver, name="dorylus-late-pool", daemon=True)
        self._postman.start()

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        try:
            reply = dense.run(call)
        except Exception as error:
            failed(error)
            return
        due = time.perf_counter() + self._delay_s(call.task)
        with self._changed:
            heapq.heappush(self._due, (due, next(self._numbers), done, reply))
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._postman.join(10)

    def _deliver(self) -> None:
        while (answer := self._next()) is not None:
            done, reply = answer
            done(reply)

    def _next(self) -> tuple[Callable[[Reply], None], Reply] | None:
        with self._changed:
            while not self._closed:
                wait_s = self._due[0][0] - time.perf_counter() if self._due else None
                if wait_s is not None and wait_s <= 0:
                    _, _, done, reply = heapq.heappop(self._due)
                    return done, reply
                self._changed.wait(wait_s)
        return None
