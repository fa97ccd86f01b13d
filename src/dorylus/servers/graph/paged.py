"""The storage of a graph server under a memory limit: a policy decides which matrices lie in files for the most part.

Before a task, the page scheduler reads the rows it needs into memory; after it, rows that are not needed soon are
dropped, or written to their file first. The gather that is made once is made for some columns after the others.
"""

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import Backend, Matrix, NumberFormat
from dorylus.paging import PagedArray, Pager, ReservedMemory, down, up
from dorylus.partition import Layout, interval_in_memory
from dorylus.pipeline import Kind
from dorylus.progress import ProgressStage
from dorylus.saga import ApplyEdge, Gather, Plan, Slot, Steps
from dorylus.servers.graph.access_sets import FEATURES, Access, access_sets, kept_names
from dorylus.servers.graph.edges import EdgeGather
from dorylus.servers.graph.gathers import EachInterval, Gatherer
from dorylus.servers.graph.input_rows import InputRows
from dorylus.servers.graph.matrices import Arena, Matrices
from dorylus.servers.graph.pass_context import Grad, PassContext, Published


@dataclass(frozen=True, kw_only=True)
class SpillPolicy:
    """Which matrices are paged: in a file, with only the rows in use in memory.

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


class PagedMatrices(Matrices):
    """Named matrices, a span of rows an interval. ``is_paged`` returns by name which of them lie in files."""

    def __init__(
        self, backend: Backend, pager: Pager, bounds: NDArray[np.int64], is_paged: Callable[[Hashable], bool]
    ) -> None:
        super().__init__(backend, Arena(backend))
        self.paged: dict[Any, PagedArray] = {}
        self._pager, self._bounds, self._is_paged = pager, bounds, is_paged

    def put(self, name: Any, matrix: Matrix | PagedArray) -> None:
        """Hold a matrix made by the caller, perhaps a paged one."""
        self.paged.pop(name, None)
        if isinstance(matrix, PagedArray):
            self.paged[name] = matrix
            matrix = self._backend.from_host(matrix.array)
        super().put(name, matrix)

    def in_memory(self, names: Iterable[Any], interval: int) -> AbstractContextManager[None]:
        """Have an interval's rows of some matrices in memory while the context is open."""
        return interval_in_memory(tuple(self.paged[name] for name in names if name in self.paged), interval)

    def pages_of(self, names: Iterable[Any], make: Callable[[Any], object]) -> list[PagedArray]:
        """Those of some matrices that are paged, made now if they are not held."""
        for name in names:
            make(name)
        return [self.paged[name] for name in names if name in self.paged]

    def release(self, names: Iterable[Any]) -> None:
        """Release these matrices; those over files that are only read stay."""
        gone = [name for name in names if name not in self.paged or not self.paged[name].read_only]
        super().release(gone)
        with self._lock:
            arrays = [self.paged.pop(name) for name in gone if name in self.paged]
        for array in arrays:
            self._pager.give_back(array)

    def _make(self, name: Any, rows: int, columns: int, number_format: NumberFormat, zero: bool) -> Matrix:
        shape, dtype = (rows, columns), self._backend.dtype(number_format)
        if self._is_paged(name):
            self.paged[name] = self._pager.scratch(shape, dtype, self._bounds)
            array = self.paged[name].array
        else:
            array = ReservedMemory(rows * columns * dtype.itemsize, huge=True).array(shape, dtype)
        matrix = self._held[name] = self._backend.from_host(array)  # zeros, as all fresh pages are
        return matrix


class PagedStorage:
    """A :class:`~dorylus.servers.graph.storage.Storage` whose policy keeps some matrices in files.

    Its matrices are host memory: the back end has to work there. ``static_blocks``: the most blocks of columns in
    which the gather that needs making only once is made.
    """

    def __init__(self, backend: Backend, pager: Pager, policy: SpillPolicy, static_blocks: int = 1) -> None:
        self._backend, self._pager, self._policy, self._static_blocks = backend, pager, policy, static_blocks

    def open_pass(self, layout: Layout, plan: Plan) -> "PagedPassStorage":
        """The storage of one pass."""
        matrices = PagedMatrices(self._backend, self._pager, layout.bounds, lambda name: self._policy.pages(name, plan))
        return PagedPassStorage(matrices, plan, self._pager, self._static_blocks)

    def clear(self) -> None:
        """Do nothing: memory of released matrices has returned to the system."""


class PagedPassStorage:
    """One pass whose matrices lie partly in files."""

    parts_wait_in_rows = True

    def __init__(self, matrices: PagedMatrices, plan: Plan, pager: Pager, static_blocks: int) -> None:
        self.matrices, self._plan, self._pager, self._static_blocks = matrices, plan, pager, static_blocks

    def publish_features(self, features: InputRows, context: PassContext) -> None:
        """Hold the features where they lie or, in another number format or in blocks of columns, a copy."""
        paged = context.shard.paged_features
        # float16 that lies in no file is widened to a scratch file and not in memory.
        spills = paged is None and context.shard.half_features
        if features.stored_as_given and not spills:
            self.matrices.put(features.slot, paged or features.with_ghosts(keep=True))
            return
        pages = [] if paged is None else [paged]
        pages += self.matrices.pages_of(features.parts, context.values)
        for interval, (begin, end) in enumerate(pairwise(context.layout.bounds.tolist())):
            with interval_in_memory(tuple(pages), interval):
                features.copy_rows(begin, end)
                for page in pages:
                    page.wrote(interval)

    def gather_once(
        self, stage: Gather, gather: Gatherer, context: PassContext, features: InputRows, each_interval: EachInterval
    ) -> PagedArray:
        """Gather once, a block of columns after the other, into a scratch file."""
        gathered = _gather_once(stage, gather, context, each_interval, self._pager, self._static_blocks)
        self.matrices.put(stage.output, gathered)
        self._put_features(context)  # the slot held blocks of columns
        return gathered

    def task_rows(
        self,
        context: PassContext,
        steps: Steps,
        gathers: Mapping[Gather, Gatherer],
        edges: Mapping[ApplyEdge, EdgeGather],
    ) -> "PageScheduler":
        """The page scheduler of the pass."""
        self._put_features(context)
        parts = self._plan.parts.get(self._plan.features, (self._plan.features,))
        lasting = [stage.output for stage in gathers if stage.output.source == "static"]
        kept = [FEATURES, *parts, *lasting, *self._plan.results]
        pages = paged_edges_of(steps, gathers, edges)
        return PageScheduler(steps, context.layout.num_intervals, self.matrices, pages, kept)

    def _put_features(self, context: PassContext) -> None:
        """Hold paged features under the names by which dense tasks and scatters read them."""
        paged = context.shard.paged_features
        if paged is not None:
            self.matrices.put(FEATURES, paged)
            if not self._plan.features.gathered:
                self.matrices.put(self._plan.features, paged)


AHEAD = 2  # how many intervals' rows are read in advance


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
        self._accesses = access_sets(steps)
        phases = [step.phase for step in steps.table.steps]
        self._last = _last_accesses(self._accesses, phases, frozenset(kept))
        self._whole: set[tuple[int, Any]] = set()  # by step and name
        self._left: dict[int, int] = {}
        self._acquired: dict[tuple[int, int], list[PagedArray]] = {}  # by step and interval
        self._lock = threading.Lock()
        self._passed: list[set[int]] = [set() for _ in phases]  # by step: the intervals finished in this epoch

    def before(self, step: int, interval: int) -> None:
        """Have in memory what a task reads, and start reading what the next ones will."""
        access = self._accesses[step]
        for name in access.wholes:
            self._acquire_whole(step, name)
        rows = self._acquired[step, interval] = self._paged(access.reads)
        arrays = [*rows, *self._edges.get(step, ())]
        for array in arrays:
            array.acquire(interval)
        for following in range(interval + 1, interval + 1 + AHEAD):
            if following not in self._passed[step]:
                for array in arrays:
                    array.ahead(following)

    def after(self, step: int, interval: int) -> None:
        """A task is finished: drop the rows that no task needs soon."""
        self._pass(step, interval)
        access = self._accesses[step]
        for array in self._edges.get(step, ()):
            array.release(interval, leave=True)
        for array in self._acquired.pop((step, interval), ()):
            array.release(interval, leave=False)
        for array in self._paged(access.writes):
            array.wrote(interval)
        for name, forgotten in self._last[step]:
            if name in self._matrices.paged:
                self._drop(self._matrices.paged[name], interval, forgotten)
        if access.wholes:
            self._count_down(step, access)

    def _pass(self, step: int, interval: int) -> None:
        """Count an interval as finished before its rows are dropped, or else rows read again would stay in memory."""
        self._passed[step].add(interval)
        if len(self._passed[step]) == self._num_intervals:
            self._passed[step].clear()

    def _drop(self, array: PagedArray, interval: int, forgotten: bool) -> None:
        if forgotten:
            array.discard(interval)
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

    def _count_down(self, step: int, access: Access) -> None:
        with self._lock:
            self._left[step] = self._left.get(step, self._num_intervals) - 1
            if self._left[step]:
                return
            del self._left[step]
            for name in access.wholes:
                if (step, name) in self._whole:
                    self._whole.discard((step, name))
                    self._matrices.paged[name].release_all()


def paged_edges_of(
    steps: Steps, gathers: Mapping[Gather, Gatherer], edges: Mapping[ApplyEdge, EdgeGather]
) -> dict[int, tuple[PagedArray, ...]]:
    """The paged edges that every step reads."""
    pages = {}
    for number, (step, stage) in enumerate(zip(steps.table.steps, steps.stages, strict=True)):
        over = stage.over if isinstance(stage, Gather) else stage
        if isinstance(over, ApplyEdge):
            pages[number] = edges[over].edges.pages
        elif isinstance(stage, Gather) and step.kind is Kind.GATHER:
            pages[number] = gathers[stage].edges.pages
        elif isinstance(stage, Gather) and step.kind is Kind.GRAD_GATHER:
            pages[number] = gathers[stage].back.pages
    return pages


def _last_accesses(
    accesses: Sequence[Access], phases: Sequence[int], kept: frozenset[Any]
) -> list[list[tuple[Any, bool]]]:
    """For every step: the names whose rows no later step of its phase uses, and whether no later step does at all."""
    last: list[list[tuple[Any, bool]]] = []
    for step, access in enumerate(accesses):
        later = list(zip(accesses, phases, strict=True))[step + 1 :]
        soon = {name for other, phase in later if phase == phases[step] for name in other.rows}
        ever = {name for other, _ in later for name in (*other.rows, *other.wholes)} | kept
        last.append([(name, name not in ever) for name in access.rows if name not in soon])
    return last


def _gather_once(
    stage: Gather,
    gather: Gatherer,
    context: PassContext,
    each_interval: EachInterval,
    pager: Pager,
    static_blocks: int,
) -> PagedArray:
    """All rows of the gather. ``each_interval(n, work)`` does some work for n intervals."""
    shape, dtype = (context.num_rows, stage.output.columns), context.backend.dtype(context.gathered_format)
    target = pager.scratch(shape, dtype, context.layout.bounds)
    blocks = stage.spec.blocks_made_once(stage.output.columns, static_blocks)
    features, edges = context.num_rows * _feature_bytes(stage), gather.edges.num_edges * _edge_bytes(gather)
    progress = pager.stage("gathering the features", len(blocks) * (features + edges))
    for columns in blocks:
        _gather_columns(stage, gather, context, each_interval, target, columns, progress)
    return target


def _feature_bytes(stage: Gather) -> int:
    """What is read of a vertex for every block: all of its features."""
    return 4 * stage.inputs[0].columns


def _edge_bytes(gather: Gatherer) -> int:
    return 4 if gather.edges.values is None else 8


def _gather_columns(
    stage: Gather,
    gather: Gatherer,
    context: PassContext,
    each_interval: EachInterval,
    target: PagedArray,
    columns: slice,
    progress: ProgressStage,
) -> None:
    width = columns.stop - columns.start
    row_bytes = 4 * width
    reserved = ReservedMemory(context.num_rows * row_bytes)
    gathered = context.backend.from_host(reserved.array((context.num_rows, width), np.float32))
    rounded = context.backend.from_host(target.array)[:, columns]
    context.matrices.put(stage.inputs[0], _feature_columns(stage, context, columns, progress))
    context.matrices.put(stage.output, gathered)

    offsets = gather.edges.indptr

    def work(interval: int) -> None:
        begin, end = context.layout.rows(stage.output.level, interval)
        with interval_in_memory(gather.edges.pages, interval):
            gather.forward(interval, 0)
        with interval_in_memory((target,), interval):
            context.store(gathered[begin:end], rounded, begin, end)
            target.wrote(interval)
        progress.add(int(offsets[end] - offsets[begin]) * _edge_bytes(gather))
        reserved.drop(up(begin * row_bytes), max(up(begin * row_bytes), down(end * row_bytes)))

    each_interval(context.layout.num_intervals, work)
    context.matrices.release([stage.inputs[0], stage.output, *kept_names(stage)])


def _feature_columns(stage: Gather, context: PassContext, columns: slice, progress: ProgressStage) -> Matrix:
    """Some columns of all features, in memory."""
    shard = context.shard
    size, width = shard.num_vertices, columns.stop - columns.start
    x = ReservedMemory(4 * size * width, huge=True).array((size, width), np.float32)
    pages = () if shard.paged_features is None else (shard.paged_features,)
    for interval, (begin, end) in enumerate(pairwise(shard.layout.bounds.tolist())):
        with interval_in_memory(pages, interval):
            x[begin:end] = shard.feature_rows(begin, end, columns)
        progress.add((end - begin) * _feature_bytes(stage))
    return context.backend.from_host(x)
