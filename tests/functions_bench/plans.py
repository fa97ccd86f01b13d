"""Which invocations fail, and how: at random by a seed, or by a list."""

import random
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from functions_bench.injected_faults import InjectedFault


class Plan(Protocol):
    """Returns the fault of each invocation, one after the other."""

    def next(self) -> InjectedFault | None:
        """The fault of the next invocation; None if it has none."""


class Share:
    """A share of all invocations fails, with every fault equally often; the same seed gives the same sequence."""

    def __init__(self, share: float, seed: int = 0, faults: Sequence[InjectedFault] = tuple(InjectedFault)) -> None:
        self._share, self._random, self._lock = share, random.Random(seed), threading.Lock()
        self._deck = self._deal(list(faults))

    def next(self) -> InjectedFault | None:
        with self._lock:
            return next(self._deck) if self._random.random() < self._share else None

    def _deal(self, faults: list[InjectedFault]) -> Iterator[InjectedFault]:
        while True:
            self._random.shuffle(faults)
            yield from faults


class Script:
    """The next invocations have the listed faults; all others have none."""

    def __init__(self, faults: Iterable[InjectedFault | None] = ()) -> None:
        self._faults = deque(faults)

    def then(self, fault: InjectedFault) -> None:
        """Append a fault to the list."""
        self._faults.append(fault)

    def next(self) -> InjectedFault | None:
        with suppress(IndexError):
            return self._faults.popleft()
        return None
