"""How fast a pool was at one limit: measured over a stretch of completed calls. Pure.

What is measured is the time in which there was anything to do, shared out over the calls that ended in it: idle time is
nobody's fault. Calls of different kinds are kept apart, and two stretches are compared kind by kind.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from statistics import median

from dorylus.pools.tuning.line import Completion

_LONG = 3.0  # a gap longer than this many median latencies is of a call that hung, not of the limit


@dataclass(frozen=True)
class Measure:
    """What a stretch showed: ``gaps`` is the number of calls of each kind and the busy seconds that went by for each.

    ``queue``: how many calls waited on average; ``peak``: the most that were under way; ``waited``: the share of
    calls that had to wait.
    """

    limit: int
    calls: int
    busy_s: float
    gaps: Mapping[Hashable, tuple[int, float]]
    queue: float
    peak: int
    waited: float

    @property
    def throughput(self) -> float:
        """Calls a second, while there was anything to do."""
        return self.calls / self.busy_s if self.busy_s else 0.0

    def speed_up(self, before: "Measure") -> float:
        """How many times faster this was than that, on the kinds both saw."""
        both = self.gaps.keys() & before.gaps.keys()
        calls = {kind: self.gaps[kind][0] + before.gaps[kind][0] for kind in both}
        now_s = sum(calls[kind] * self.gaps[kind][1] for kind in both)
        before_s = sum(calls[kind] * before.gaps[kind][1] for kind in both)
        return before_s / now_s if now_s and before_s else 1.0


class Window:
    """Collects completions at one limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._completions: list[Completion] = []

    @property
    def calls(self) -> int:
        """How many calls it has seen."""
        return len(self._completions)

    def add(self, completion: Completion) -> None:
        """A call has ended."""
        self._completions.append(completion)

    def measure(self) -> Measure:
        """What it has seen so far, which must not be nothing."""
        by_kind: dict[Hashable, list[Completion]] = defaultdict(list)
        for each in self._completions:
            by_kind[each.kind].append(each)
        seen, busy_s = self._completions, sum(each.busy_s for each in self._completions)
        return Measure(
            self.limit,
            len(seen),
            busy_s,
            {kind: (len(those), _gap_s(those)) for kind, those in by_kind.items()},
            sum(each.waiting_s for each in seen) / busy_s if busy_s else 0.0,
            max(each.peak for each in seen),
            sum(each.waited for each in seen) / len(seen),
        )


def _gap_s(completions: list[Completion]) -> float:
    """The mean busy time that went by for one call of a kind."""
    longest_s = _LONG * median(each.ended_s - each.launched_s for each in completions)
    return sum(min(each.busy_s, longest_s) for each in completions) / len(completions)
