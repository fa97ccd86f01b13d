"""Whether a run that was given no memory limit has room on this machine: it is refused before any work if it has not.

Only what is known to be needed counts. Rows that training never computes do not, and neither do pages of the store that
the kernel can drop, or ghosts, which several servers hold beside what one would; a machine that does not say what it
has free is taken to have enough.
"""

from dataclasses import replace

from dorylus import process_memory
from dorylus.errors import ConfigError
from dorylus.memory.layout import MemoryLayout, Shape
from dorylus.memory.limit import MIB, MemoryPlan, RunRequest, cut_way, enough, is_mapped, memory_plan, plain_way
from dorylus.memory.model import in_memory
from dorylus.memory.model_pass import ARENA
from dorylus.memory.scratch import Scratch
from dorylus.sizes import format_bytes

MANY = 64  # matrices of all widths of a model, and copies of all edges: no run has so many
SPARE = 20  # a limit that is proposed leaves this part of what is free to others


def check_room(asked: RunRequest) -> None:
    """Refuse a run in this process that needs more memory than there is, with the cure."""
    if asked.config.memory is not None:
        return
    free = process_memory.free_bytes()
    if free is None or _is_small(asked, free):
        return
    shape = Shape.of(asked.graph, asked.evaluation)
    way = _way(asked, shape, free)
    needed = _needed(asked, shape, way)
    if needed > free and asked.config.prune_rows and asked.training is not None:
        look = cut_way(asked, shape, way, look=True)
        needed = _needed(asked, shape, replace(look, intervals=max(way.intervals, look.intervals)))
    if needed > free and (cure := _cure(asked, free)):
        what = "the forward pass" if asked.training is None else "the run"
        raise ConfigError(
            f"{what} needs about {format_bytes(needed)} of memory, and {format_bytes(free)} are free. {cure}"
        )


def _is_small(asked: RunRequest, free: int) -> bool:
    """Whether a run is so small that it need not be reckoned: most are."""
    columns = sum(layer.in_columns + layer.out_columns for layer in asked.evaluation.layers)
    return asked.graph.num_vertices * 4 * MANY * columns + asked.graph.num_edges * 4 * MANY < free


def _way(asked: RunRequest, shape: Shape, free: int) -> MemoryLayout:
    """Everything in memory, in the intervals that a run without a limit has."""
    way = plain_way(asked, shape, max(1, free))
    cut = cut_way(asked, shape, way)
    return replace(cut, intervals=max(way.intervals, cut.intervals))


def _needed(asked: RunRequest, shape: Shape, way: MemoryLayout) -> int:
    figures = in_memory(shape, asked.training, asked.evaluation, way, mapped=is_mapped(asked.graph))
    return process_memory.private_bytes() + figures.peak - figures.droppable - way.threads * ARENA


def _cure(asked: RunRequest, free: int) -> str:
    """What would do: a limit, where that is enough, with the settings that go with one; nothing where all fits."""
    plan = _plan_below(asked, free)
    if plan.verdict == "fits":  # it would, cut more finely: no reason to refuse anything
        return ""
    if plan.chosen is not None and plan.scratch is not None:
        return _with_files(_settings(asked, plan.limit), plan.scratch)
    half = _plan_below(asked.with_settings(precision="bf16"), free)
    if not half.cure:
        settings = _settings(asked, half.limit, "precision='bf16'")
        return f"Give {settings}, which is an approximation, or take a narrower model."
    return (
        f"Even with a limit, and everything in files that can be, it needs {format_bytes(enough(asked, plan))}: end "
        "other programs, take a narrower model or a larger machine, or several of them with cluster='ray'."
    )


def _plan_below(asked: RunRequest, free: int) -> MemoryPlan:
    """With a limit that leaves some of what is free; with the least that does, where that is more."""
    plan = memory_plan(asked, _sensible(free))
    least = enough(asked, plan)
    return memory_plan(asked, least) if plan.limit < least <= free else plan


def _with_files(setting: str, scratch: Scratch) -> str:
    files = f"{format_bytes(scratch.needed)} of scratch in {scratch.folder}"
    if not scratch.problem:
        return f"Give {setting}: what does not fit then lies in files, {files}."
    if scratch.in_memory is not None:
        return f"{setting} would do with {files}; but {scratch.problem}"
    found = format_bytes(scratch.free or 0)
    return f"{setting} would do with {files}, where {found} are free: make room there, or name another as scratch_dir."


def _settings(asked: RunRequest, limit: int, *more: str) -> str:
    """A limit, and the settings that have to change for it to be kept."""
    changes = (f"{name}={value!r}" for name, value in asked.changes.items())
    named = [*changes, f"memory='{_text(limit)}'", *more]
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _sensible(free: int) -> int:
    """A round amount of memory that leaves some of what is free to others."""
    some = free - free // SPARE
    for unit in (1024 * MIB, 256 * MIB, 16 * MIB, MIB):
        if some >= 8 * unit:
            return some // unit * unit
    return max(MIB, some // MIB * MIB)


def _text(limit: int) -> str:
    return f"{limit // (1024 * MIB)}GiB" if limit % (1024 * MIB) == 0 else f"{limit // MIB}MiB"
