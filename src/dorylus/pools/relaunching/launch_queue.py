"""Calls that wait for their launch: until their pause is over, and the pace lets them. Pure: time is passed in."""

import heapq
from math import inf

from dorylus.pipeline import Task
from dorylus.pools.relaunching.pace import Pace
from dorylus.pools.relaunching.tickets import Ticket


class LaunchQueue:
    """Gives the calls that may be launched now, in order of priority (the order of tasks)."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._resting: list[tuple[float, int, Ticket]] = []
        self._ready: list[tuple[Task, int, Ticket]] = []

    def add(self, ticket: Ticket, when_s: float) -> None:
        """Launch this call, not before then."""
        heapq.heappush(self._resting, (when_s, ticket.number, ticket))

    def take(self, now_s: float) -> Ticket | None:
        """The next one to be launched now."""
        while self._resting and self._resting[0][0] <= now_s:
            _, number, ticket = heapq.heappop(self._resting)
            heapq.heappush(self._ready, (ticket.call.task, number, ticket))
        if not self._any_ready() or self._pace.ready_s() > now_s:
            return None
        return heapq.heappop(self._ready)[2]

    def next_s(self) -> float:
        """When :meth:`take` will next give something by the passing of time alone."""
        pause_s = self._resting[0][0] if self._resting else inf
        return min(pause_s, self._pace.ready_s()) if self._any_ready() else pause_s

    def clear(self) -> None:
        """Nobody waits any more."""
        self._resting.clear()
        self._ready.clear()

    def _any_ready(self) -> bool:
        """Whether somebody is ready who has not been answered meanwhile, by an attempt that was overdue."""
        while self._ready and not self._ready[0][2].is_open:
            heapq.heappop(self._ready)
        return bool(self._ready)
