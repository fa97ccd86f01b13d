"""Which attempts are overdue. Pure: time is passed in.

Time-outs are those known *now*, not those known when an attempt was launched: of a hundred calls launched at the same
moment, the one that hangs is overdue as soon as the others have shown how long such calls take.
"""

from collections.abc import Hashable
from math import inf

from dorylus.pools.relaunching.durations import Durations
from dorylus.pools.relaunching.tickets import Attempt

_Group = tuple[Hashable, int]  # attempts with one time-out: calls of one kind that had as many time-outs before


class Overdue:
    """Attempts under way, in groups that share a time-out; within a group the first launched is the first overdue."""

    def __init__(self, durations: Durations) -> None:
        self._durations = durations
        self._groups: dict[_Group, dict[Attempt, float]] = {}
        self._group_of: dict[Attempt, _Group] = {}

    def watch(self, attempt: Attempt, kind: Hashable, timeouts: int, now_s: float) -> None:
        """An attempt is under way from now on; its call has had so many time-outs before."""
        group = self._group_of[attempt] = (kind, timeouts)
        self._groups.setdefault(group, {})[attempt] = now_s

    def forget(self, attempt: Attempt) -> None:
        """It has reported, or nobody needs it any more."""
        group = self._group_of.pop(attempt, None)
        if group is not None:
            members = self._groups[group]
            del members[attempt]
            if not members:
                del self._groups[group]

    def next_s(self) -> float:
        """When the next attempt is overdue; infinite if none is under way."""
        return min((self._due_s(group) for group in self._groups), default=inf)

    def take(self, now_s: float) -> list[Attempt]:
        """Those that are overdue, and forget them."""
        taken: list[Attempt] = []
        for group in list(self._groups):
            while group in self._groups and self._due_s(group) <= now_s:
                first = next(iter(self._groups[group]))
                taken.append(first)
                self.forget(first)
        return taken

    def _due_s(self, group: _Group) -> float:
        return next(iter(self._groups[group].values())) + self._durations.timeout_s(*group)
