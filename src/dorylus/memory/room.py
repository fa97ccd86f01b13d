"""Refuses a run without a memory limit that needs more memory than this machine has free, before any work.

Only what is certainly needed counts: no rows that training never computes, no pages of the store that the kernel can
drop, no ghosts of several servers. Where the system does not report its free memory, nothing is refused.
"""

from dataclasses import replace

from dorylus import process_memory
from dorylus.errors import ConfigError, given
from dorylus.memory.layout import GraphSizes, MemoryLayout
from dorylus.memory.limit import (
    MIB,
    MemoryPlan,
    RunRequest,
    first_layout,
    is_mapped,
    layout_in_memory,
    least_limit,
    memory_plan,
)
from dorylus.memory.model import in_memory
from dorylus.memory.model_pass import ARENA
from dorylus.memory.scratch import Scratch
from dorylus.units import format_bytes

MANY = 64  # more than any run has: matrices of all of a model's widths, or copies of all edges
SPARE = 20  # a proposed limit leaves the free memory divided by this to other programs


def check_room(request: RunRequest) -> None:
    """Refuse a run in this process that needs more memory than is free, with the cure."""
    if request.config.memory is not None:
        return
    free = process_memory.free_bytes()
    if free is None or _is_small(request, free):
        return
    sizes = GraphSizes.of(request.graph, request.evaluation)
    layout = _layout(request, sizes, free)
    needed = _needed(request, sizes, layout)
    if needed > free and request.config.prune_rows and request.training is not None:
        pruned = layout_in_memory(request, sizes, layout, prune=True)
        needed = _needed(request, sizes, replace(pruned, intervals=max(layout.intervals, pruned.intervals)))
    if needed > free and (cure := _cure(request, free)):
        what = "the forward pass" if request.training is None else "the run"
        raise ConfigError(
            f"{what} needs about {format_bytes(needed)} of memory, and {format_bytes(free)} are free. {cure}"
        )


def _is_small(request: RunRequest, free: int) -> bool:
    """Whether a run is so small that it certainly fits: most are."""
    columns = sum(layer.in_columns + layer.out_columns for layer in request.evaluation.layers)
    return request.graph.num_vertices * 4 * MANY * columns + request.graph.num_edges * 4 * MANY < free


def _layout(request: RunRequest, sizes: GraphSizes, free: int) -> MemoryLayout:
    """Everything in memory, in the intervals that a run without a limit has."""
    first = first_layout(request, sizes, max(1, free))
    layout = layout_in_memory(request, sizes, first)
    return replace(layout, intervals=max(first.intervals, layout.intervals))


def _needed(request: RunRequest, sizes: GraphSizes, layout: MemoryLayout) -> int:
    figures = in_memory(sizes, request.training, request.evaluation, layout, mapped=is_mapped(request.graph))
    return process_memory.private_bytes() + figures.peak - figures.droppable - layout.threads * ARENA


def _cure(request: RunRequest, free: int) -> str:
    """The settings with which the run fits: a limit, if one is enough; empty where the run fits as it is."""
    plan = _plan_below(request, free)
    if plan.verdict == "fits":  # it fits in more intervals, so it is not refused
        return ""
    if plan.chosen is not None and plan.scratch is not None:
        return _with_files(_settings(request, plan.limit), plan.scratch)
    half = _plan_below(request.with_settings(precision="bf16"), free)
    if not half.cure:
        settings = _settings(request, half.limit, precision="bf16")
        return f"Give {settings}, which is an approximation, or take a narrower model."
    least = format_bytes(least_limit(request, plan))
    return (
        f"Even with a limit, and everything in files that can be, it needs {least}: end "
        f"other programs, take a narrower model or a larger machine, or several of them with {given('cluster', 'ray')}."
    )


def _plan_below(request: RunRequest, free: int) -> MemoryPlan:
    """The plan with a limit below the free memory: a round one, or else the least that the run fits into."""
    plan = memory_plan(request, _round_limit(free))
    least = least_limit(request, plan)
    return memory_plan(request, least) if plan.limit < least <= free else plan


def _with_files(setting: str, scratch: Scratch) -> str:
    files = f"{format_bytes(scratch.needed)} of scratch in {scratch.folder}"
    if not scratch.problem:
        return f"Give {setting}: what does not fit then lies in files, {files}."
    if scratch.in_memory is not None:
        return f"{setting} would do with {files}; but {scratch.problem}"
    free = format_bytes(scratch.free or 0)
    return (
        f"{setting} would do with {files}, where {free} are free: make room there, or name another as "
        f"{given('scratch_dir')}."
    )


def _settings(request: RunRequest, limit: int, **more: str) -> str:
    """A limit, and the settings that must change with it, as the user writes them."""
    changes = {**request.changes, "memory": _text(limit), **more}
    named = [given(name, value) for name, value in changes.items()]
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _round_limit(free: int) -> int:
    """A round amount of memory that leaves some to other programs."""
    some = free - free // SPARE
    for unit in (1024 * MIB, 256 * MIB, 16 * MIB, MIB):
        if some >= 8 * unit:
            return some // unit * unit
    return max(MIB, some // MIB * MIB)


def _text(limit: int) -> str:
    return f"{limit // (1024 * MIB)}GiB" if limit % (1024 * MIB) == 0 else f"{limit // MIB}MiB"
