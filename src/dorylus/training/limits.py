"""How a run keeps its memory limit: the cheapest way that fits, or a refusal that says what would."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dorylus.cluster import Limited, memory
from dorylus.errors import ConfigError
from dorylus.graph import Graph
from dorylus.graph.places import is_elsewhere
from dorylus.graph.sizes import format_bytes, parse_bytes
from dorylus.saga import Plan
from dorylus.saga.columns import LINE, in_blocks
from dorylus.servers.holding import Holding
from dorylus.training.config import RunConfig
from dorylus.training.memory_model import Figures, Shape, Way, in_files, in_memory

SLACK = 96 << 20  # what allocators keep, threads, and whatever the model does not know of
MARGIN = 25  # the part of a limit that is left alone: a prediction is not exact
SHARE_OF_WORK = 10  # intervals are cut so small that what is in hand takes this part of the limit
MOST_INTERVALS = 1024
FEWEST_ROWS = 512
HOLDINGS = (  # the cheapest first
    Holding(rows=False, gathered=False, published=False),
    Holding(rows=True, gathered=False, published=False),
    Holding(rows=True, gathered=False, published=True),
    Holding(rows=True, gathered=True, published=True),
)


@dataclass(frozen=True)
class Limits:
    """The plans as they are run, and how: with ``limited``, partly in files. ``peak`` is what that is to take."""

    training: Plan | None
    evaluation: Plan
    intervals: int
    limited: Limited | None
    figures: Figures
    peak: int


@dataclass(frozen=True)
class MemoryPlan:
    """What a run takes under a limit. ``chosen``: the cheapest way that fits; None where not even the smallest does."""

    limit: int
    chosen: Limits | None
    smallest: Limits

    @property
    def verdict(self) -> str:
        """``fits``, ``fits with spilling`` or ``does not fit``."""
        if self.chosen is None:
            return "does not fit"
        return "fits" if self.chosen.limited is None else "fits with spilling"

    @property
    def shown(self) -> Limits:
        """The way to be told about."""
        return self.chosen or self.smallest


def memory_plan(graph: Graph, training: Plan | None, evaluation: Plan, config: RunConfig, threads: int) -> MemoryPlan:
    """What a run takes and how it would be held under the limit of its settings, or in the memory there is."""
    limit = memory.available_bytes() if config.memory is None else parse_bytes(config.memory)
    used = memory.private_bytes() + SLACK
    last: Limits | None = None
    for way in _ways(graph, training, evaluation, config, threads, limit, used):
        last = way
        if way.peak <= limit - limit // MARGIN:
            return MemoryPlan(limit, way, way)
    assert last is not None
    return MemoryPlan(limit, None, last)


def limits(graph: Graph, training: Plan | None, evaluation: Plan, config: RunConfig, threads: int) -> Limits | None:
    """How the limit of the settings is kept; None where there is none, or where everything fits in memory anyway.

    Refuses what cannot be done, and says why.
    """
    if config.memory is None:
        return None
    plan = memory_plan(graph, training, evaluation, config, threads)
    if plan.chosen is None:
        raise ConfigError(refusal(graph, config, plan))
    if plan.chosen.limited is None:
        return None
    _check_disk(plan.chosen)
    return plan.chosen


def refusal(graph: Graph, config: RunConfig, plan: MemoryPlan) -> str:
    """Why a plan cannot be carried out, and the smallest change with which it could."""
    half = "" if config.precision == "bf16" else " precision='bf16' stores what is gathered in half the bytes."
    needed = plan.smallest.peak * MARGIN // (MARGIN - 1)
    return (
        f"{format_bytes(plan.limit)} of memory are too little for graph {graph.name!r} and this model: with everything "
        f"in files that can be, {format_bytes(needed)} are needed at the worst moment. Give "
        f"memory='{-(-needed // 2**20)}MiB', or a narrower model.{half}"
    )


def _ways(
    graph: Graph, training: Plan | None, evaluation: Plan, config: RunConfig, threads: int, limit: int, used: int
) -> Iterator[Limits]:
    """Every way to run, the cheapest first: in memory, more and more in files, narrower and narrower gathers."""
    shape, mapped = Shape.of(graph, evaluation), graph.store is not None
    intervals = config.intervals or _intervals(shape, evaluation, threads, limit)
    way = Way(
        holding=HOLDINGS[0],
        static_blocks=_static_blocks(shape, limit),
        intervals=intervals,
        threads=threads,
        half=config.precision == "bf16",
    )
    figures = in_memory(shape, training, evaluation, way, mapped=mapped)
    yield Limits(training, evaluation, intervals, None, figures, used + figures.peak)
    for holding, blocks in _tries(evaluation):
        trained = None if training is None else in_blocks(training, blocks)
        evaluated = in_blocks(evaluation, blocks)
        figures = in_files(shape, trained, evaluated, replace(way, holding=holding))
        limited = Limited(scratch=_scratch(graph, config), holding=holding, static_blocks=way.static_blocks)
        yield Limits(trained, evaluated, intervals, limited, figures, used + figures.peak)


def _tries(plan: Plan) -> list[tuple[Holding, int]]:
    widest = max(max(layer.in_columns, layer.out_columns) for layer in plan.layers)
    blocks = range(2, -(-widest // LINE) + 1)
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


def _scratch(graph: Graph, config: RunConfig) -> str:
    if config.scratch_dir is not None:
        return config.scratch_dir
    if config.run_dir is not None:
        return str(Path(config.run_dir).resolve().parent)
    if graph.store is not None and not is_elsewhere(graph.store):
        return str(Path(graph.store).parent)
    return tempfile.gettempdir()


def _check_disk(way: Limits) -> None:
    assert way.limited is not None
    needed, folder = way.figures.on_disk.total(), way.limited.scratch
    if not Path(folder).is_dir():
        raise ConfigError(f"scratch_dir={folder!r} is no folder: make it, or name another.")
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ConfigError(
            f"the run needs {format_bytes(needed)} of scratch in {folder}, which has {format_bytes(free)} free: make "
            "room there, or name another folder as scratch_dir."
        )
