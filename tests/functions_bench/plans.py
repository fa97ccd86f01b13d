"""Which invocations go wrong, and how: by a seed, or as a test says."""

import random
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from functions_bench.misdeeds import Misdeed


class Plan(Protocol):
    """Says of one invocation after the other what it does wrong."""

    def next(self) -> Misdeed | None:
        """The misdeed of the next invocation; None if it behaves."""


class Share:
    """A share of all invocations goes wrong, in every way equally often; the same seed gives the same row of deeds."""

    def __init__(self, share: float, seed: int = 0, deeds: Sequence[Misdeed] = tuple(Misdeed)) -> None:
        self._share, self._random, self._lock = share, random.Random(seed), threading.Lock()
        self._deck = self._deal(list(deeds))

    def next(self) -> Misdeed | None:
        with self._lock:
            return next(self._deck) if self._random.random() < self._share else None

    def _deal(self, deeds: list[Misdeed]) -> Iterator[Misdeed]:
        while True:
            self._random.shuffle(deeds)
            yield from deeds


class Script:
    """The next invocations do as listed; all others behave."""

    def __init__(self, deeds: Iterable[Misdeed | None] = ()) -> None:
        self._deeds = deque(deeds)

    def then(self, deed: Misdeed) -> None:
        """Another one at the end of the list."""
        self._deeds.append(deed)

    def next(self) -> Misdeed | None:
        with suppress(IndexError):
            return self._deeds.popleft()
        return None
