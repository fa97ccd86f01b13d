"""Who may go, and who waits: at most so many under way, the others in order of priority. Pure: time is passed in.

It also measures, because here is where everybody passes: how long each took, how many waited, and how much of the time
there was anything to do.
"""

import heapq
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from dorylus.pipeline import Task
from dorylus.saga.dense import Call, Reply


@dataclass(eq=False)
class Place:
    """A call in the line."""

    call: Call
    done: Callable[[Reply], None]
    failed: Callable[[BaseException], None]
    joined_s: float
    launched_s: float = 0.0
    dropped: bool = False  # the answer is not wanted any more


class Completion(NamedTuple):
    """A call that has been answered, and what happened since the one before was.

    ``kind``: what calls that do the same work have in common. ``busy_s`` is how much of that time there was anybody in
    the line, ``waiting_s`` the integral over it of how many waited, ``peak`` the most that were under way. ``waited``:
    whether this call had to wait.
    """

    kind: Hashable
    interval: int
    launched_s: float
    ended_s: float
    waited: bool
    busy_s: float
    waiting_s: float
    peak: int


class Load(NamedTuple):
    """A line at one moment, and its totals so far. ``idle_s``: when nobody was in it."""

    limit: int
    waiting: int
    under_way: int
    completed: int
    busy_s: float
    idle_s: float


class Line:
    """At most ``limit`` calls under way; those that wait go in the order of their tasks, then of their coming."""

    def __init__(self, limit: int, now_s: float) -> None:
        self.limit = limit
        self._waiting: list[tuple[Task, int, Place]] = []
        self._under_way: set[Place] = set()
        self._joined = self._completed = self._peak = 0
        self._counted_s = now_s  # up to when time has been counted
        self._busy_s = self._idle_s = 0.0
        self._since = (0.0, 0.0)  # busy and waiting seconds since the last completion

    def load(self, now_s: float) -> Load:
        """How it stands."""
        self._count_time(now_s)
        waiting, under_way = len(self._waiting), len(self._under_way)
        return Load(self.limit, waiting, under_way, self._completed, self._busy_s, self._idle_s)

    def join(
        self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None], now_s: float
    ) -> None:
        """A call comes."""
        self._count_time(now_s)
        heapq.heappush(self._waiting, (call.task, self._joined, Place(call, done, failed, now_s)))
        self._joined += 1

    def go(self, now_s: float) -> list[Place]:
        """Those that may go now; they are under way from now on."""
        self._count_time(now_s)
        gone = []
        while self._waiting and len(self._under_way) < self.limit:
            place = heapq.heappop(self._waiting)[2]
            place.launched_s = now_s
            self._under_way.add(place)
            gone.append(place)
        self._peak = max(self._peak, len(self._under_way))
        return gone

    def left(self, place: Place, now_s: float) -> bool:
        """A call is not under way any more; False if that was known, or the line is cleared."""
        self._count_time(now_s)
        if place not in self._under_way:
            return False
        self._under_way.remove(place)
        return True

    def completed(self, place: Place, now_s: float) -> Completion:
        """A call that has left was answered: what is to be known about it."""
        busy_s, waiting_s = self._since
        peak, self._peak = self._peak, len(self._under_way)
        self._since = (0.0, 0.0)
        self._completed += 1
        call, waited = place.call, place.launched_s > place.joined_s
        # The body tells training from evaluation, whose steps are counted alike.
        kind = (call.task.step, call.mode, call.body)
        return Completion(kind, call.task.interval, place.launched_s, now_s, waited, busy_s, waiting_s, peak)

    def drop(self, calls: Collection[Call], now_s: float) -> list[Call]:
        """These calls leave the line; gives those of them that were under way."""
        self._count_time(now_s)
        wanted = {id(call) for call in calls}
        gone = [place for place in self._under_way if id(place.call) in wanted]
        for place in gone:
            place.dropped = True
        self._under_way.difference_update(gone)
        self._waiting = [each for each in self._waiting if id(each[2].call) not in wanted]
        heapq.heapify(self._waiting)
        return [place.call for place in gone]

    def clear(self) -> None:
        """Everybody is forgotten."""
        self._waiting.clear()
        self._under_way.clear()

    def _count_time(self, now_s: float) -> None:
        passed_s, self._counted_s = now_s - self._counted_s, now_s
        if self._waiting or self._under_way:
            self._busy_s += passed_s
            busy_s, waiting_s = self._since
            self._since = (busy_s + passed_s, waiting_s + passed_s * len(self._waiting))
        else:
            self._idle_s += passed_s
