"""A call carried out in another process, as the two ends see it: what is done there, and what is counted here."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from dorylus.pools.travel import PackedReply
from dorylus.saga import dense
from dorylus.saga.dense import Call


@dataclass(frozen=True)
class Answer:
    """A reply, or the body's own error; how often the call was begun before, and whether its process was new to it."""

    reply: PackedReply | None
    error: Exception | None
    attempt: int
    cold: bool
    compute_s: float


_calls_here = count()


def carry_out(call: Call, attempt: int, portable: Callable[[Exception], Exception]) -> Answer:
    """Run a call that has travelled here. ``portable`` makes an error fit for the way back."""
    torch.set_num_threads(1)  # as everywhere: with more, sums come out in another order
    cold, begun = next(_calls_here) == 0, time.perf_counter()
    reply = error = None
    try:
        reply = PackedReply.of(dense.run(call))
    except Exception as why:  # the body's own: it goes to the run as it is, and is not tried again
        error = portable(why)
    return Answer(reply, error, attempt, cold, time.perf_counter() - begun)


class Tally:
    """What was sent and answered so far; any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = self._again = self._cold_starts = self._bytes_in = self._bytes_out = 0
        self._compute_s = 0.0

    def sent(self, nbytes: int) -> None:
        """A call has left, with so much."""
        with self._lock:
            self._calls += 1
            self._bytes_in += nbytes

    def answered(self, answer: Answer) -> None:
        """A call was answered."""
        with self._lock:
            self._again += answer.attempt
            self._cold_starts += answer.cold
            self._bytes_out += 0 if answer.reply is None else answer.reply.nbytes
            self._compute_s += answer.compute_s

    def figures(self) -> Mapping[str, Any]:
        """The same in the words of functions.

        Bytes are as the other end sees them. Nothing is billed: what is paid for are the machines.
        """
        with self._lock:
            launches = self._calls + self._again
            return {
                "calls": self._calls,
                "launches": launches,
                "invocations": launches,
                "relaunches": self._again,
                "losses": self._again,
                "cold_starts": self._cold_starts,
                "bytes_in": self._bytes_in,
                "bytes_out": self._bytes_out,
                "compute_ms": 1000 * self._compute_s,
                "billed_ms": 0.0,
                **dict.fromkeys(("timeouts", "throttled", "refused", "duplicates", "duplicate_parts"), 0),
            }
