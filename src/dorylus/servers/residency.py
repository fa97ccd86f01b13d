"""Residency: before a task, the rows it reads come into memory; after it, rows that will not be needed soon go.

Soon means in the same phase of the epoch: there, an interval's tasks follow one another closely. Rows needed in a later
phase go to their file, rows not needed again this epoch are forgotten.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dorylus.paging import PagedArray
from dorylus.pipeline import Kind
from dorylus.saga.stages import ApplyEdge, Gather
from dorylus.saga.table import Steps
from dorylus.servers.edges import EdgeGather
from dorylus.servers.gathers import Gatherer
from dorylus.servers.paged_matrices import PagedMatrices
from dorylus.servers.touches import Touch, touches_of

AHEAD = 2  # intervals whose rows are read while one is at work


class Residency:
    """The paged matrices of one pass. ``edges[step]``: the paged edges a step reads; ``kept`` stay after an epoch."""

    def __init__(
        self,
        steps: Steps,
        num_intervals: int,
        matrices: PagedMatrices,
        edges: Mapping[int, Sequence[PagedArray]],
        kept: Iterable[Any],
    ) -> None:
        self._matrices, self._num_intervals, self._edges = matrices, num_intervals, edges
        self._touches = touches_of(steps)
        phases = [step.phase for step in steps.table.steps]
        self._last = _last_touches(self._touches, phases, frozenset(kept))
        self._whole: set[tuple[int, Any]] = set()  # by step and name
        self._left: dict[int, int] = {}
        self._at_hand: dict[tuple[int, int], list[PagedArray]] = {}  # by step and interval
        self._lock = threading.Lock()
        self._passed: list[set[int]] = [set() for _ in phases]  # by step, the intervals it is done with this epoch

    def before(self, step: int, interval: int) -> None:
        """Have in memory what a task reads, and ask for what the next ones will."""
        touch = self._touches[step]
        for name in touch.wholes:
            self._acquire_whole(step, name)
        rows = self._at_hand[step, interval] = self._paged(touch.reads)
        arrays = [*rows, *self._edges.get(step, ())]
        for array in arrays:
            array.acquire(interval)
        for following in range(interval + 1, interval + 1 + AHEAD):
            if following not in self._passed[step]:
                for array in arrays:
                    array.ahead(following)

    def after(self, step: int, interval: int) -> None:
        """A task is done: let go of what nobody needs soon."""
        self._pass(step, interval)
        touch = self._touches[step]
        for array in self._edges.get(step, ()):
            array.release(interval, leave=True)
        for array in self._at_hand.pop((step, interval), ()):
            array.release(interval, leave=False)
        for array in self._paged(touch.writes):
            array.wrote(interval)
        for name, forgotten in self._last[step]:
            if name in self._matrices.paged:
                self._let_go(self._matrices.paged[name], interval, forgotten)
        if touch.wholes:
            self._count_down(step, touch)

    def _pass(self, step: int, interval: int) -> None:
        """Note that an interval was here, before its rows go: nobody would let go of them if they were read again."""
        self._passed[step].add(interval)
        if len(self._passed[step]) == self._num_intervals:
            self._passed[step].clear()

    def _let_go(self, array: PagedArray, interval: int, forgotten: bool) -> None:
        if forgotten:
            array.forget(interval)
        else:
            array.leave(interval)

    def _paged(self, names: Iterable[Any]) -> list[PagedArray]:
        paged = self._matrices.paged
        return [paged[name] for name in names if name in paged]

    def _acquire_whole(self, step: int, name: Any) -> None:
        array = self._matrices.paged.get(name)
        with self._lock:
            if array is not None and (step, name) not in self._whole:
                array.acquire_all()
                self._whole.add((step, name))

    def _count_down(self, step: int, touch: Touch) -> None:
        with self._lock:
            self._left[step] = self._left.get(step, self._num_intervals) - 1
            if self._left[step]:
                return
            del self._left[step]
            for name in touch.wholes:
                if (step, name) in self._whole:
                    self._whole.discard((step, name))
                    self._matrices.paged[name].release_all()


def paged_edges_of(
    steps: Steps, gathers: Mapping[Gather, Gatherer], edges: Mapping[ApplyEdge, EdgeGather]
) -> dict[int, tuple[PagedArray, ...]]:
    """The paged edges that every step reads."""
    found = {}
    for number, (step, stage) in enumerate(zip(steps.table.steps, steps.stages, strict=True)):
        over = stage.over if isinstance(stage, Gather) else stage
        if isinstance(over, ApplyEdge):
            found[number] = edges[over].edges.pages
        elif isinstance(stage, Gather) and step.kind is Kind.GATHER:
            found[number] = gathers[stage].edges.pages
        elif isinstance(stage, Gather) and step.kind is Kind.GRAD_GATHER:
            found[number] = gathers[stage].back.pages
    return found


def _last_touches(
    touches: Sequence[Touch], phases: Sequence[int], kept: frozenset[Any]
) -> list[list[tuple[Any, bool]]]:
    """For every step: the names whose rows no later step of its phase touches, and whether no later one does at all."""
    last: list[list[tuple[Any, bool]]] = []
    for step, touch in enumerate(touches):
        later = list(zip(touches, phases, strict=True))[step + 1 :]
        soon = {name for other, phase in later if phase == phases[step] for name in other.rows}
        ever = {name for other, _ in later for name in (*other.rows, *other.wholes)} | kept
        last.append([(name, name not in ever) for name in touch.rows if name not in soon])
    return last
