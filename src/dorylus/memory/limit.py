"""How a run keeps its memory limit: the cheapest way that fits, or a refusal that says what would."""

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from dorylus import process_memory
from dorylus.errors import ConfigError, given, spelled
from dorylus.graph import Graph, is_elsewhere
from dorylus.memory.layout import Figures, MemoryLayout, Shape
from dorylus.memory.model import in_files, in_memory
from dorylus.memory.scratch import Scratch, scratch_folder
from dorylus.memory.settings import MemorySettings
from dorylus.partition import choose_intervals, needed_levels, settle_levels
from dorylus.saga import LINE, Plan, in_blocks
from dorylus.servers import SpillPolicy
from dorylus.sizes import format_bytes, parse_bytes

MIB = 1 << 20
SLACK = 16 * MIB  # threads, the kernel's own, and whatever the model does not know of
MARGIN = 25  # the part of a limit that is left alone, as a prediction is not exact;
LEAST_MARGIN = 48 * MIB  # but no less than this: what allocators keep varies from run to run, whatever the limit
SHARE_OF_WORK = 10  # intervals are cut so small that what is in hand takes this part of the limit
MOST_INTERVALS = 1024
EDGES_PER_EDGE_TASK = 200_000  # an ApplyEdge holds several rows per edge: keep its intervals small
FEWEST_ROWS = 512
SPARE = 8 * MIB  # of a limit that is named: whoever is told of it plans again, and may have loaded a little more
MOST_BLOCKS = 128  # of columns that a gather is made in: each block reads all edges again
EVERY_BLOCKS = 16  # up to here every number of blocks is tried, beyond it every multiple of this
WORTH_NAMING = 0.9  # of what is needed, another setting makes this at most
HOLDINGS = (  # the cheapest first
    SpillPolicy(rows=False, gathered=False, published=False),
    SpillPolicy(rows=True, gathered=False, published=False),
    SpillPolicy(rows=True, gathered=False, published=True),
    SpillPolicy(rows=True, gathered=True, published=True),
)


@dataclass(frozen=True, kw_only=True)
class SpillSettings:
    """How a job keeps a memory limit: what lies in files, in which folder, and how features are first gathered."""

    scratch: str
    holding: SpillPolicy
    static_blocks: int = 1


@dataclass(frozen=True, kw_only=True)
class MemoryBounds:
    """How a job that has nothing in files keeps a memory limit: bytes that the process and its matrices are to take.

    Free memory counts: matrices keep no more of it than ``matrices`` leaves, the rest no more than ``process`` does.
    """

    matrices: int
    process: int


class Needed(NamedTuple):
    """How many rows training needs at each level, and how many edges end in them."""

    rows: tuple[int, ...]
    edges: tuple[int, ...]


_NEEDED: MutableMapping[Graph, dict[int, Needed]] = WeakKeyDictionary()  # by graph and number of layers


@dataclass(frozen=True)
class RunLimits:
    """The plans as they are run, and how: with ``limited``, partly in files; without it, in memory that is given back.

    ``peak`` is what that is to take.
    """

    training: Plan | None
    evaluation: Plan
    intervals: int
    limited: SpillSettings | None
    figures: Figures
    peak: int

    @property
    def bounded(self) -> MemoryBounds | None:
        """What the run is to keep to where nothing is in files."""
        return MemoryBounds(matrices=self.figures.matrices, process=self.peak) if self.limited is None else None


@dataclass(frozen=True)
class RunRequest:
    """A run that is to be planned: its graph, its plans and its settings.

    ``to_load``: what the process that runs it will have loaded beside what this one has. ``changes``: the settings
    that would have to change for a memory limit to be kept.
    """

    graph: Graph
    training: Plan | None
    evaluation: Plan
    config: MemorySettings
    threads: int
    to_load: int = 0
    intervals: int | None = None
    keeps_activations: bool = True
    run_dir: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    def with_settings(self, **settings: Any) -> "RunRequest":
        """The same run with other settings of how its numbers are held."""
        return replace(self, config=replace(self.config, **settings))


@dataclass(frozen=True, repr=False)
class MemoryPlan:
    """What a run takes under a limit. ``chosen``: the cheapest way that fits; None where not even the smallest does.

    ``scratch``: the disk space for the way that is shown, where it needs any. ``refusal``: why the run cannot be
    carried out and the smallest change with which it could, its settings marked; nothing where it can.
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
    def shown(self) -> RunLimits:
        """The way to be told about."""
        return self.chosen or self.smallest

    @property
    def peak(self) -> int:
        """The bytes that are to be in memory at the worst moment."""
        return self.shown.peak

    def __repr__(self) -> str:
        figures = self.shown.figures
        told = {"in memory": self.peak, "in files": figures.on_disk.total(), "limit": self.limit}
        moved = f"an epoch reads {format_bytes(figures.read)} and writes {format_bytes(figures.written)}"
        return f"MemoryPlan({self.verdict}: {', '.join(f'{k} {format_bytes(v)}' for k, v in told.items())}; {moved})"


def memory_plan(asked: RunRequest, limit: int | None = None) -> MemoryPlan:
    """What a run takes and how it would be held: under a limit, that of its settings, or in the memory there is."""
    if limit is None:
        limit = process_memory.available_bytes() if asked.config.memory is None else parse_bytes(asked.config.memory)
    plan, scratch = within(asked, limit), None
    if plan.shown.limited is not None:
        by_name = asked.config.scratch_dir is not None
        scratch = Scratch.of(plan.shown.limited.scratch, plan.shown.figures.on_disk.total(), asked=by_name)
    if plan.chosen is None:
        return replace(plan, scratch=scratch, refusal=too_little(asked, plan))
    return replace(plan, scratch=scratch, refusal="" if scratch is None else scratch.problem)


def within(asked: RunRequest, limit: int) -> MemoryPlan:
    """The cheapest way that fits into a limit, whatever there is of disk space."""
    used = process_memory.private_bytes() + asked.to_load + SLACK
    tried = []
    for way in _ways(asked, limit, used):
        if way.peak <= limit - _margin(limit):
            return MemoryPlan(limit, way, way)
        tried.append(way)
    return MemoryPlan(limit, None, min(tried, key=lambda each: each.peak))


def limits(asked: RunRequest) -> RunLimits | None:
    """How the limit of the settings is kept, with files or without; None where there is none.

    Refuses what cannot be done, and says why.
    """
    if asked.config.memory is None:
        return None
    plan = memory_plan(asked)
    if plan.refusal:
        raise ConfigError(plan.refusal)
    return plan.chosen


def enough(asked: RunRequest, plan: MemoryPlan) -> int:
    """The smallest limit, in whole MiB and with a little to spare, with which a run would fit that does not."""
    if plan.chosen is not None:
        return plan.limit
    larger, limit = replace(asked, to_load=asked.to_load + SPARE), MIB
    while (tried := within(larger, limit)).chosen is None or limit <= plan.limit:
        needed = plan.limit + 1  # from the bottom: a larger limit has larger intervals, which take more in their turn
        if tried.chosen is None:
            needed = tried.peak + max(-(-tried.peak // (MARGIN - 1)), LEAST_MARGIN)
        limit = max(limit + MIB, -(-needed // MIB) * MIB)
    return limit


def _margin(limit: int) -> int:
    return max(limit // MARGIN, LEAST_MARGIN)


def too_little(asked: RunRequest, plan: MemoryPlan) -> str:
    """Why a plan cannot be carried out, and the smallest change with which it could."""
    needed, limited = enough(asked, plan), asked.config.memory is not None
    what = "of memory are" if limited else "of memory are free, which is"
    free = None if asked.config.memory is None else process_memory.free_bytes()
    short = "" if free is None or free >= needed else f" (only {format_bytes(free)} are free now)"
    cure = (
        f"Give {given('memory', f'{needed // MIB}MiB')}{short}"
        if limited
        else f"Free {format_bytes(needed)}, take a larger machine"
    )
    least, own = plan.smallest.peak, plan.smallest.peak - plan.smallest.figures.peak
    half, saved = asked.with_settings(precision="bf16"), ""
    if (less := enough(half, within(half, plan.limit))) < WORTH_NAMING * needed:
        saved = f" With {given('precision', 'bf16')}, which is an approximation, {format_bytes(less)} are enough."
    return (
        f"{format_bytes(plan.limit)} {what} too little for graph {asked.graph.name!r} and this model: with everything "
        f"in files that can be, the run takes {format_bytes(least)} at the worst moment, {format_bytes(own)} of them "
        f"for the process itself, and a limit has to leave some free. {cure}, or take a narrower model.{saved}"
    )


def _ways(asked: RunRequest, limit: int, used: int) -> Iterator[RunLimits]:
    """Every way to run, the cheapest first: in memory, more and more in files, narrower and narrower gathers."""
    graph, training, evaluation = asked.graph, asked.training, asked.evaluation
    shape = Shape.of(graph, evaluation)
    way = plain_way(asked, shape, limit)
    stored = 0 if graph.files is None else graph.files.bytes_in_memory
    whole = _whole_way(asked, shape, way, limit, used + stored)
    _add_store(whole.figures, stored - whole.figures.droppable)  # pages of it that are mapped are counted already
    yield replace(whole, peak=used + whole.figures.peak)
    for holding, blocks in _tries(evaluation):
        trained = None if training is None else in_blocks(training, blocks)
        evaluated = in_blocks(evaluation, blocks)
        figures = in_files(shape, trained, evaluated, replace(way, holding=holding))
        _add_store(figures, stored)
        folder = scratch_folder(graph, asked.config.scratch_dir, asked.run_dir)
        limited = SpillSettings(scratch=folder, holding=holding, static_blocks=way.static_blocks)
        yield RunLimits(trained, evaluated, way.intervals, limited, figures, used + figures.peak)


def _add_store(figures: Figures, num_bytes: int) -> None:
    """Count a store that lies in memory itself."""
    if num_bytes > 0:
        figures.resident["the store, which lies in memory"] += num_bytes


def _whole_way(asked: RunRequest, shape: Shape, way: MemoryLayout, limit: int, used: int) -> RunLimits:
    """Everything in memory. Edges are looked through for rows that training needs, unless it is too much anyway."""
    mapped = is_mapped(asked.graph)
    figures = in_memory(shape, None, asked.evaluation, cut_way(asked, shape, way), mapped=mapped)
    intervals = way.intervals
    if asked.training is not None and used + figures.peak <= limit - _margin(limit):
        cut = cut_way(asked, shape, way, look=asked.config.prune_rows)
        figures, intervals = in_memory(shape, asked.training, asked.evaluation, cut, mapped=mapped), cut.intervals
    elif asked.training is not None:
        figures = in_memory(shape, asked.training, asked.evaluation, cut_way(asked, shape, way), mapped=mapped)
    return RunLimits(asked.training, asked.evaluation, intervals, None, figures, used + figures.peak)


def cut_way(asked: RunRequest, shape: Shape, way: MemoryLayout, *, look: bool = False) -> MemoryLayout:
    """The way as a run in memory is cut. ``look``: through all edges, for the rows that training needs."""
    needed = levels_of(asked) if look else None
    rows, edges = (shape.vertices, shape.edges) if needed is None else (needed.rows[0], needed.edges[1])
    intervals = asked.intervals
    if intervals is None:
        intervals = choose_intervals(rows, edges, asked.threads)
        if any(layer.has_apply_edge for layer in asked.evaluation.layers):
            intervals = max(intervals, edges // EDGES_PER_EDGE_TASK)
    if needed is None:
        return replace(way, intervals=intervals, reordered=asked.config.reorder != "none")
    reordered = asked.config.reorder != "none" or needed.rows[-1] < shape.vertices
    return replace(way, intervals=intervals, rows=needed.rows, edges_into=needed.edges, reordered=reordered)


def levels_of(asked: RunRequest) -> Needed:
    """What training needs of the graph: a look at every edge, the first time."""
    graph, layers = asked.graph, len(asked.evaluation.layers)
    known = _NEEDED.setdefault(graph, {})
    if layers not in known:
        degrees = graph.in_degrees()
        deepest = settle_levels(needed_levels(graph.indptr, graph.indices, graph.train_mask, layers), degrees, layers)
        at = [deepest >= level for level in range(layers + 1)]
        known[layers] = Needed(
            tuple(int(np.count_nonzero(each)) for each in at), tuple(int(degrees[each].sum()) for each in at)
        )
    return known[layers]


def plain_way(asked: RunRequest, shape: Shape, limit: int) -> MemoryLayout:
    """The way with the least in files, and how the work is cut for a limit."""
    return MemoryLayout(
        holding=HOLDINGS[0],
        static_blocks=_static_blocks(shape, limit),
        intervals=asked.intervals or _intervals(shape, asked.evaluation, asked.threads, limit),
        threads=asked.threads,
        half=asked.config.precision == "bf16",
        kept=asked.keeps_activations,
    )


def is_mapped(graph: Graph) -> bool:
    """Whether its arrays are files of this machine; a graph from elsewhere is in memory already."""
    return graph.store is not None and not is_elsewhere(graph.store)


def _tries(plan: Plan) -> list[tuple[SpillPolicy, int]]:
    widest = max(max(layer.in_columns, layer.out_columns) for layer in plan.layers)
    most = min(-(-widest // LINE), MOST_BLOCKS)
    blocks = [each for each in range(2, most + 1) if each <= EVERY_BLOCKS or each % EVERY_BLOCKS == 0 or each == most]
    return [*((holding, 1) for holding in HOLDINGS), *((HOLDINGS[-1], each) for each in blocks)]


def _intervals(shape: Shape, plan: Plan, threads: int, limit: int) -> int:
    """So many that what is in hand at any time is a small part of the limit."""
    columns = sum(layer.in_columns + 6 * layer.out_columns for layer in plan.layers)
    in_hand = (threads + 6) * (shape.vertices * 4 * columns + shape.edge_bytes)
    wanted = -(-SHARE_OF_WORK * in_hand // limit)
    most = max(1, shape.vertices // FEWEST_ROWS)
    return max(1, min(most, MOST_INTERVALS, max(2 * threads, wanted)))


def _static_blocks(shape: Shape, limit: int) -> int:
    """So few blocks of features that one takes a third of the limit."""
    return max(1, min(shape.features, -(-3 * shape.vertices * 4 * shape.features // limit)))
