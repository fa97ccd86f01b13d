"""How long a function spent on what: standard library only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

SPENT_ON = ("init", "fetch", "compute", "push")


class Stopwatch:
    """Adds up what an invocation spends on each of its doings, by a clock in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._start_s = clock, clock()
        self._spent_s = dict.fromkeys(SPENT_ON, 0.0)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Counts the time within as spent on something; it must not be nested."""
        start_s = self._clock()
        try:
            yield
        finally:
            self._spent_s[what] += self._clock() - start_s

    def timings(self) -> dict[str, float]:
        """Milliseconds so far, by what they were spent on, and in all."""
        spent = {f"{what}_ms": round(1000 * spent_s, 3) for what, spent_s in self._spent_s.items()}
        return {**spent, "total_ms": round(1000 * (self._clock() - self._start_s), 3)}
