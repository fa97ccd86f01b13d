"""Paging as a graph server sees it: who keeps its matrices, and in how many pieces features are gathered.

What a graph server keeps in memory under a limit, and what in files.

Residency: before a task, the rows it reads come into memory; after it, rows that will not be needed soon go.

The gather that is made once, under a memory limit: some columns after the others, rows written to a file.
"""

import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.paging import PagedArray, Pager, ReservedMemory, down, up
from dorylus.partition import PagedLocalShard, at_hand
from dorylus.pipeline import Kind
from dorylus.progress import ProgressStage
from dorylus.saga import ApplyEdge, Gather, Plan, Slot, Steps
from dorylus.servers.graph.access_sets import Access, access_sets, kept_names
from dorylus.servers.graph.edges import EdgeGather
from dorylus.servers.graph.gathers import Gatherer
from dorylus.servers.graph.matrices import PagedMatrices
from dorylus.servers.graph.pass_context import Grad, Matrix, PassContext, Published
from dorylus.servers.graph.static_gather import EachInterval


@dataclass(frozen=True, kw_only=True)
class SpillPolicy:
    """Which matrices are paged: in a file, with only the rows at hand in memory.

    ``rows``: those of which an interval's tasks see no more than its own rows. ``gathered``: those that are gathered
    from; all of one is in memory while that lasts. ``published``: the same for the cotangents of the backward pass.
    """

    rows: bool = True
    gathered: bool = True
    published: bool = True

    def pages(self, name: Hashable, plan: Plan) -> bool:
        """Whether the matrix of this name is paged. What a pass results in always is, and so are features.

        What edges add to their ends never is: any interval may add to any row.
        """
        if name in plan.results or is_lasting(name):
            return True
        if isinstance(name, Grad) and any(name.slot in ends for ends in _ends(plan)):
            return False
        if isinstance(name, Slot) and name.gathered:
            return self.gathered
        return self.published if isinstance(name, Published) else self.rows


def is_lasting(name: Hashable) -> bool:
    """Whether a matrix is the same in every epoch: what is gathered once, or features.

    Features that are gathered are stored with their dropout; to others it is applied as they are read.
    """
    return isinstance(name, Slot) and name.source != "computed" and (name.dropout == 0 or not name.gathered)


def _ends(plan: Plan) -> list[tuple[Slot, Slot]]:
    return [(stage.source, stage.destination) for stage in plan.stages if isinstance(stage, ApplyEdge)]


@dataclass(frozen=True, eq=False)
class Paging:
    """What servers under a memory limit are made with. ``static_blocks``: blocks of columns of the first gather."""

    pager: Pager
    holding: SpillPolicy
    static_blocks: int = 1

    def matrices(self, bounds: NDArray[np.int64], plan: Plan) -> PagedMatrices:
        """The matrices of one pass over intervals of these rows."""
        return PagedMatrices(self.pager, bounds, lambda name: self.holding.pages(name, plan))


AHEAD = 2  # intervals whose rows are read while one is at work


class PageScheduler:
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
        self._touches = access_sets(steps)
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

    def _count_down(self, step: int, touch: Access) -> None:
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
    touches: Sequence[Access], phases: Sequence[int], kept: frozenset[Any]
) -> list[list[tuple[Any, bool]]]:
    """For every step: the names whose rows no later step of its phase touches, and whether no later one does at all."""
    last: list[list[tuple[Any, bool]]] = []
    for step, touch in enumerate(touches):
        later = list(zip(touches, phases, strict=True))[step + 1 :]
        soon = {name for other, phase in later if phase == phases[step] for name in other.rows}
        ever = {name for other, _ in later for name in (*other.rows, *other.wholes)} | kept
        last.append([(name, name not in ever) for name in touch.rows if name not in soon])
    return last


def gather_once_paged(
    stage: Gather, gather: Gatherer, bench: PassContext, each_interval: EachInterval, paging: Paging
) -> PagedArray:
    """All rows of the gather. ``each_interval(n, work)`` does some work for n intervals."""
    shape = (bench.num_rows, stage.output.columns)
    made = paging.pager.scratch(shape, bench.gathered_dtype, bench.layout.bounds)
    blocks = 1 if stage.spec.kept else min(paging.static_blocks, stage.output.columns)
    ends = np.linspace(0, stage.output.columns, blocks + 1).astype(int).tolist()
    features, edges = bench.num_rows * _feature_bytes(stage), gather.edges.num_edges * _edge_bytes(gather)
    told = paging.pager.stage("gathering the features", blocks * (features + edges))
    for columns in (slice(begin, end) for begin, end in pairwise(ends)):
        _gather_columns(stage, gather, bench, each_interval, made, columns, told)
    return made


def _feature_bytes(stage: Gather) -> int:
    """What is read of a vertex for every block: all of its features."""
    return 4 * stage.inputs[0].columns


def _edge_bytes(gather: Gatherer) -> int:
    return 4 if gather.edges.values is None else 8


def _gather_columns(
    stage: Gather,
    gather: Gatherer,
    bench: PassContext,
    each_interval: EachInterval,
    made: PagedArray,
    columns: slice,
    told: ProgressStage,
) -> None:
    width = columns.stop - columns.start
    row_bytes = 4 * width
    window = ReservedMemory(bench.num_rows * row_bytes)
    gathered = window.array((bench.num_rows, width), np.float32)
    bench.matrices.put(stage.inputs[0], _feature_columns(stage, bench, columns, told))
    bench.matrices.put(stage.output, gathered)

    offsets = gather.edges.indptr

    def work(interval: int) -> None:
        begin, end = bench.layout.rows(stage.output.level, interval)
        with at_hand(gather.edges.pages, interval):
            gather.forward(interval, 0)
        with at_hand((made,), interval):
            bench.store(gathered[begin:end], made.array[:, columns], begin, end)
            made.wrote(interval)
        told.add(int(offsets[end] - offsets[begin]) * _edge_bytes(gather))
        window.drop(up(begin * row_bytes), max(up(begin * row_bytes), down(end * row_bytes)))

    each_interval(bench.layout.num_intervals, work)
    bench.matrices.release([stage.inputs[0], stage.output, *kept_names(stage)])


def _feature_columns(stage: Gather, bench: PassContext, columns: slice, told: ProgressStage) -> Matrix:
    """Some columns of all features, in memory."""
    shard = bench.shard
    assert isinstance(shard, PagedLocalShard)
    size, width = shard.num_vertices, columns.stop - columns.start
    x: Matrix = ReservedMemory(4 * size * width, huge=True).array((size, width), np.float32)
    pages = () if shard.features is None else (shard.features,)
    for interval, (begin, end) in enumerate(pairwise(shard.layout.bounds.tolist())):
        with at_hand(pages, interval):
            x[begin:end] = shard.feature_rows(begin, end, columns)
        told.add((end - begin) * _feature_bytes(stage))
    return x
