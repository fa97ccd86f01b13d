"""How a run keeps its memory limit: the cheapest layout that fits, or a refusal that names the cure.

Layouts are tried from the cheapest on: everything in memory, then more and more in files (``SPILL_POLICIES``), then
gathers in more and more blocks of columns. :mod:`dorylus.memory.model` predicts what each takes.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from dorylus import process_memory
from dorylus.errors import ConfigError, given, spelled
from dorylus.graph import Graph, is_remote
from dorylus.memory.layout import Figures, GraphSizes, MemoryLayout
from dorylus.memory.model import in_files, in_memory
from dorylus.memory.scratch import Scratch, scratch_folder
from dorylus.memory.settings import MemorySettings
from dorylus.partition import choose_intervals, needed_levels, settle_levels
from dorylus.saga import LINE, Plan, in_blocks
from dorylus.servers import SpillPolicy
from dorylus.units import format_bytes, parse_bytes

MIB = 1 << 20
SLACK = 16 * MIB  # threads, kernel memory, and everything else that the model does not count
MARGIN = 25  # a limit divided by this stays free, because a prediction is not exact;
LEAST_MARGIN = 48 * MIB  # but no less than this: what allocators keep varies from run to run under any limit
SHARE_OF_WORK = 10  # intervals are so small that rows in use take the limit divided by this
MOST_INTERVALS = 1024
EDGES_PER_EDGE_TASK = 200_000  # an ApplyEdge holds several rows per edge: keep its intervals small
FEWEST_ROWS = 512
SPARE = 8 * MIB  # added to a proposed limit: the process of the next plan may have loaded more
MOST_BLOCKS = 128  # of columns per gather: each block reads all edges again
EVERY_BLOCKS = 16  # up to here every number of blocks is tried, beyond it every multiple of this
WORTH_NAMING = 0.9  # another setting is named where it needs at most this part
SPILL_POLICIES = (  # the cheapest first
    SpillPolicy(rows=False, gathered=False, published=False),
    SpillPolicy(rows=True, gathered=False, published=False),
    SpillPolicy(rows=True, gathered=False, published=True),
    SpillPolicy(rows=True, gathered=True, published=True),
)


@dataclass(frozen=True, kw_only=True)
class SpillSettings:
    """How a job keeps a memory limit with files: their folder, what they hold, and the most first-gather blocks."""

    scratch: str
    policy: SpillPolicy
    static_blocks: int = 1


@dataclass(frozen=True, kw_only=True)
class MemoryBounds:
    """How a job without files keeps a memory limit: the most bytes of its matrices and of the process.

    Freed memory that is not yet returned to the system counts in both.
    """

    matrices: int
    process: int


class NeededRows(NamedTuple):
    """How many rows training needs at each level, and how many edges end in them."""

    rows: tuple[int, ...]
    edges: tuple[int, ...]


_NEEDED_ROWS: MutableMapping[Graph, dict[int, NeededRows]] = WeakKeyDictionary()  # by graph and number of layers


@dataclass(frozen=True)
class RunLimits:
    """How a run keeps a limit: the plans it runs, the number of intervals, and what it is predicted to take.

    ``limited``: how matrices lie in files; None where all are in memory. ``keeps_graphs``: autograd's graphs stay in
    memory from forward to backward; beside matrices in files there is no room for them. ``peak``: bytes in memory, with
    the process.
    """

    training: Plan | None
    evaluation: Plan
    intervals: int
    limited: SpillSettings | None
    keeps_graphs: bool
    figures: Figures
    peak: int

    @property
    def bounded(self) -> MemoryBounds | None:
        """The bounds of a run that has nothing in files."""
        return MemoryBounds(matrices=self.figures.matrices, process=self.peak) if self.limited is None else None


@dataclass(frozen=True)
class RunRequest:
    """A run to be planned: its graph, its plans and its settings.

    ``to_load``: bytes that the process that runs it will have loaded beyond what this one has. ``changes``: the
    settings that would have to change for a memory limit to be kept.
    """

    graph: Graph
    training: Plan | None
    evaluation: Plan
    config: MemorySettings
    threads: int
    to_load: int = 0
    intervals: int | None = None
    keeps_graphs: bool = True
    run_dir: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    def with_settings(self, **settings: Any) -> "RunRequest":
        """The same run with other settings of how its numbers are held."""
        return replace(self, config=replace(self.config, **settings))


@dataclass(frozen=True, repr=False)
class MemoryPlan:
    """What a run takes under a limit. ``chosen``: the cheapest layout that fits; None where not even the smallest does.

    ``scratch``: the disk space for the reported layout, where it needs any. ``refusal``: why the run does not fit, and
    the smallest change with which it does, its settings marked; empty where it fits.
    """

    limit: int
    chosen: RunLimits | None
    smallest: RunLimits
    scratch: Scratch | None = None
    refusal: str = ""

    @property
    def cure(self) -> str:
        """``refusal`` with its settings as arguments in Python."""
        return spelled(self.refusal)

    @property
    def verdict(self) -> str:
        """``fits``, ``fits with spilling`` or ``does not fit``, in memory or on the disk."""
        if self.chosen is None or self.refusal:
            return "does not fit"
        return "fits" if self.chosen.limited is None else "fits with spilling"

    @property
    def reported(self) -> RunLimits:
        """The layout that fits, or else the smallest."""
        return self.chosen or self.smallest

    @property
    def peak(self) -> int:
        """The predicted bytes in memory at the worst moment."""
        return self.reported.peak

    def __repr__(self) -> str:
        figures = self.reported.figures
        sizes = {"in memory": self.peak, "in files": figures.on_disk.total(), "limit": self.limit}
        moved = f"an epoch reads {format_bytes(figures.read)} and writes {format_bytes(figures.written)}"
        return f"MemoryPlan({self.verdict}: {', '.join(f'{k} {format_bytes(v)}' for k, v in sizes.items())}; {moved})"


def memory_plan(request: RunRequest, limit: int | None = None) -> MemoryPlan:
    """What a run takes under a limit: the given one, that of its settings, or the memory available."""
    if limit is None:
        limit = (
            process_memory.available_bytes() if request.config.memory is None else parse_bytes(request.config.memory)
        )
    plan, scratch = plan_within(request, limit), None
    if plan.reported.limited is not None:
        named = request.config.scratch_dir is not None
        scratch = Scratch.of(plan.reported.limited.scratch, plan.reported.figures.on_disk.total(), named=named)
    if plan.chosen is None:
        return replace(plan, scratch=scratch, refusal=refusal(request, plan))
    return replace(plan, scratch=scratch, refusal="" if scratch is None else scratch.problem)


def plan_within(request: RunRequest, limit: int) -> MemoryPlan:
    """The cheapest layout that fits into a limit; disk space is not checked."""
    used = process_memory.private_bytes() + request.to_load + SLACK
    tried = []
    for candidate in _candidates(request, limit, used):
        if candidate.peak <= limit - _margin(limit):
            return MemoryPlan(limit, candidate, candidate)
        tried.append(candidate)
    return MemoryPlan(limit, None, min(tried, key=lambda each: each.peak))


def limits(request: RunRequest) -> RunLimits | None:
    """How the limit of the settings is kept; None where there is none.

    A run that cannot keep it is refused with the cure.
    """
    if request.config.memory is None:
        return None
    plan = memory_plan(request)
    if plan.refusal:
        raise ConfigError(plan.refusal)
    return plan.chosen


def least_limit(request: RunRequest, plan: MemoryPlan) -> int:
    """The smallest limit that a run fits into, in whole MiB and with a little to spare, where it does not fit now."""
    if plan.chosen is not None:
        return plan.limit
    larger, limit = replace(request, to_load=request.to_load + SPARE), MIB
    while (tried := plan_within(larger, limit)).chosen is None or limit <= plan.limit:
        needed = plan.limit + 1  # search from the bottom: a larger limit has larger intervals, which take more
        if tried.chosen is None:
            needed = tried.peak + max(-(-tried.peak // (MARGIN - 1)), LEAST_MARGIN)
        limit = max(limit + MIB, -(-needed // MIB) * MIB)
    return limit


def _margin(limit: int) -> int:
    return max(limit // MARGIN, LEAST_MARGIN)


def refusal(request: RunRequest, plan: MemoryPlan) -> str:
    """The error message for a plan that does not fit: what it needs, and the smallest change that helps."""
    needed, limited = least_limit(request, plan), request.config.memory is not None
    what = "of memory are" if limited else "of memory are free, which is"
    free = None if request.config.memory is None else process_memory.free_bytes()
    short = "" if free is None or free >= needed else f" (only {format_bytes(free)} are free now)"
    cure = (
        f"Give {given('memory', f'{needed // MIB}MiB')}{short}"
        if limited
        else f"Free {format_bytes(needed)}, take a larger machine"
    )
    least, own = plan.smallest.peak, plan.smallest.peak - plan.smallest.figures.peak
    half, saved = request.with_settings(precision="bf16"), ""
    if (less := least_limit(half, plan_within(half, plan.limit))) < WORTH_NAMING * needed:
        saved = f" With {given('precision', 'bf16')}, which is an approximation, {format_bytes(less)} are enough."
    return (
        f"{format_bytes(plan.limit)} {what} too little for graph {request.graph.name!r} and this model: with "
        f"everything in files that can be, the run takes {format_bytes(least)} at the worst moment, "
        f"{format_bytes(own)} of them for the process itself, and a limit has to leave some free. {cure}, "
        f"or take a narrower model.{saved}"
    )


def _candidates(request: RunRequest, limit: int, used: int) -> Iterator[RunLimits]:
    """Every layout, the cheapest first: in memory, more and more in files, narrower and narrower gathers."""
    graph, training, evaluation = request.graph, request.training, request.evaluation
    sizes = GraphSizes.of(graph, evaluation)
    layout = first_layout(request, sizes, limit)
    stored = 0 if graph.files is None else graph.files.bytes_in_memory
    whole = _all_in_memory(request, sizes, layout, limit, used + stored)
    _add_store(whole.figures, stored - whole.figures.droppable)  # pages of it that are mapped are counted already
    yield replace(whole, peak=used + whole.figures.peak)
    for policy, blocks in _spill_choices(evaluation):
        trained = None if training is None else in_blocks(training, blocks)
        evaluated = in_blocks(evaluation, blocks)
        figures = in_files(sizes, trained, evaluated, replace(layout, spill=policy, kept=False))
        _add_store(figures, stored)
        folder = scratch_folder(graph, request.config.scratch_dir, request.run_dir)
        limited = SpillSettings(scratch=folder, policy=policy, static_blocks=layout.static_blocks)
        yield RunLimits(trained, evaluated, layout.intervals, limited, False, figures, used + figures.peak)


def _add_store(figures: Figures, num_bytes: int) -> None:
    """Count a store that is itself in memory (tmpfs)."""
    if num_bytes > 0:
        figures.resident["the store, which lies in memory"] += num_bytes


def _all_in_memory(request: RunRequest, sizes: GraphSizes, layout: MemoryLayout, limit: int, used: int) -> RunLimits:
    """Everything in memory. All edges are read for the rows that training needs, unless the rest does not fit."""
    mapped = is_mapped(request.graph)
    figures = in_memory(sizes, None, request.evaluation, layout_in_memory(request, sizes, layout), mapped=mapped)
    intervals = layout.intervals
    if request.training is not None and used + figures.peak <= limit - _margin(limit):
        pruned = layout_in_memory(request, sizes, layout, prune=request.config.prune_rows)
        figures = in_memory(sizes, request.training, request.evaluation, pruned, mapped=mapped)
        intervals = pruned.intervals
    elif request.training is not None:
        whole = layout_in_memory(request, sizes, layout)
        figures = in_memory(sizes, request.training, request.evaluation, whole, mapped=mapped)
    return RunLimits(request.training, request.evaluation, intervals, None, layout.kept, figures, used + figures.peak)


def layout_in_memory(
    request: RunRequest, sizes: GraphSizes, layout: MemoryLayout, *, prune: bool = False
) -> MemoryLayout:
    """The layout with the intervals of a run in memory. ``prune``: count only rows that training needs."""
    needed = needed_rows(request) if prune else None
    rows, edges = (sizes.vertices, sizes.edges) if needed is None else (needed.rows[0], needed.edges[1])
    intervals = request.intervals
    if intervals is None:
        intervals = choose_intervals(rows, edges, request.threads)
        if any(layer.has_apply_edge for layer in request.evaluation.layers):
            intervals = max(intervals, edges // EDGES_PER_EDGE_TASK)
    if needed is None:
        return replace(layout, intervals=intervals, reordered=request.config.reorder != "none")
    reordered = request.config.reorder != "none" or needed.rows[-1] < sizes.vertices
    return replace(layout, intervals=intervals, rows=needed.rows, edges_into=needed.edges, reordered=reordered)


def needed_rows(request: RunRequest) -> NeededRows:
    """The rows and edges that training needs at each level; the first call for a graph reads all edges."""
    graph, layers = request.graph, len(request.evaluation.layers)
    known = _NEEDED_ROWS.setdefault(graph, {})
    if layers not in known:
        degrees = graph.in_degrees()
        deepest = settle_levels(needed_levels(graph.indptr, graph.indices, graph.train_mask, layers), degrees, layers)
        at = [deepest >= level for level in range(layers + 1)]
        known[layers] = NeededRows(
            tuple(int(np.count_nonzero(each)) for each in at), tuple(int(degrees[each].sum()) for each in at)
        )
    return known[layers]


def first_layout(request: RunRequest, sizes: GraphSizes, limit: int) -> MemoryLayout:
    """The layout with nothing in files, in intervals and blocks that suit a limit."""
    return MemoryLayout(
        spill=SPILL_POLICIES[0],
        static_blocks=_static_blocks(sizes, limit),
        intervals=request.intervals or _intervals(sizes, request.evaluation, request.threads, limit),
        threads=request.threads,
        half=request.config.precision == "bf16",
        kept=request.keeps_graphs,
    )


def is_mapped(graph: Graph) -> bool:
    """Whether a graph's arrays are mapped files of this machine; others are in memory already."""
    return graph.store is not None and not is_remote(graph.store)


def _spill_choices(plan: Plan) -> list[tuple[SpillPolicy, int]]:
    widest = max(max(layer.in_columns, layer.out_columns) for layer in plan.layers)
    most = min(-(-widest // LINE), MOST_BLOCKS)
    blocks = [each for each in range(2, most + 1) if each <= EVERY_BLOCKS or each % EVERY_BLOCKS == 0 or each == most]
    return [*((policy, 1) for policy in SPILL_POLICIES), *((SPILL_POLICIES[-1], each) for each in blocks)]


def _intervals(sizes: GraphSizes, plan: Plan, threads: int, limit: int) -> int:
    """The number of intervals with which rows in use are a small part of the limit."""
    columns = sum(layer.in_columns + 6 * layer.out_columns for layer in plan.layers)
    in_use = (threads + 6) * (sizes.vertices * 4 * columns + sizes.edge_bytes)
    suitable = -(-SHARE_OF_WORK * in_use // limit)
    most = max(1, sizes.vertices // FEWEST_ROWS)
    return max(1, min(most, MOST_INTERVALS, max(2 * threads, suitable)))


def _static_blocks(sizes: GraphSizes, limit: int) -> int:
    """The most blocks of feature columns in which the first gather is made: one takes a third of the limit."""
    return max(1, min(sizes.features, -(-3 * sizes.vertices * 4 * sizes.features // limit)))
