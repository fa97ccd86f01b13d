"""How old the values are that gathers read: measured at every read, independently of the scheduler."""

import threading
from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dorylus.partition import Between, LocalShard
from dorylus.pipeline import Scope, Task, TaskTable
from dorylus.saga import ApplyEdge, Gather, Steps


class Ages:
    """Counts values read across intervals by age: the reader's epoch less the writer's, at most S + 1.

    A value is a row of another interval, read over an edge. A negative age is a writer ahead of its reader. Stamps are
    read before the rows are, so a value that is overwritten in between counts as older than it was, never as younger.
    """

    def __init__(self, table: TaskTable, shard: LocalShard, levels: Mapping[int, int]) -> None:
        """``levels``: for each step that reads, the level of the rows at whose edges it reads."""
        self._mine = shard.mine
        self._across: dict[int, list[tuple[int, Between]]] = {}
        self._stamps: dict[int, NDArray[np.int64]] = {}
        for step, row in enumerate(table.steps):
            for need in row.needs:
                if need.scope in (Scope.SOURCES, Scope.READERS):
                    forward = need.scope is Scope.SOURCES
                    between = (shard.edges_between if forward else shard.out_edges_between)(levels[step])
                    self._across.setdefault(step, []).append((need.step, _others(between, shard.mine)))
                    self._stamps[need.step] = np.full(shard.num_intervals, -1, np.int64)
        self._counts: Counter[int] = Counter()
        self._lock = threading.Lock()

    def written(self, task: Task) -> None:
        """Note that a task's values are in place."""
        if task.step in self._stamps:
            self._stamps[task.step][task.interval] = task.epoch

    def read(self, task: Task) -> None:
        """Count the values a task is about to read."""
        for step, between in self._across.get(task.step, ()):
            others, edges = between[task.interval - self._mine.start]
            ages, where = np.unique(task.epoch - self._stamps[step][others], return_inverse=True)
            counts = np.bincount(where, weights=edges, minlength=len(ages)).astype(np.int64)
            with self._lock:
                self._counts.update(dict(zip(ages.tolist(), counts.tolist(), strict=True)))

    def take(self) -> dict[int, int]:
        """{age: values read} since the last call."""
        with self._lock:
            counts, self._counts = dict(self._counts), Counter()
        return counts


def levels_read(steps: Steps) -> dict[int, int]:
    """For each step that reads other intervals' rows, the level of the rows at whose edges it does."""
    levels = {}
    for step, row in enumerate(steps.table.steps):
        for need in row.needs:
            reader, writer = steps.stages[step], steps.stages[need.step]
            at = reader if isinstance(reader, Gather | ApplyEdge) else writer  # ∇AV reads what edges were sent back
            levels[step] = at.output.level if isinstance(at, Gather) else getattr(at, "level", 0)
    return levels


def _others(between: Between, mine: range) -> Between:
    """The same without an interval's reads of its own rows, which are always of its own epoch."""
    pairs = zip(mine, between, strict=True)
    return [(others[others != own], edges[others != own]) for own, (others, edges) in pairs]
