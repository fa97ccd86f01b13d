"""The three schedules: ``no_pipe``, ``pipe`` and ``async`` with a staleness bound.

Each turns a task table into a :class:`Schedule`: what tasks wait for, and how far intervals may drift apart. The
scheduler reads tables and a bound (:mod:`dorylus.pipeline.staleness`); it does not depend on modes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from dorylus.errors import ConfigError, given, unknown_value
from dorylus.pipeline.tasks import Need, Scope, TaskTable

MODES = ("pipe", "no_pipe", "async")


@dataclass(frozen=True)
class Schedule:
    """What tasks wait for in exact epochs and in relaxed ones (the same steps, fewer needs), and the staleness bound.

    An interval may start a relaxed epoch e that follows a relaxed one when every interval of the cluster has finished
    epoch e - 1 - ``staleness``; before and after an exact epoch, when every interval has finished epoch e - 1. The
    first epoch a scheduler runs is always exact: no older values are there to read.
    """

    exact: TaskTable
    relaxed: TaskTable
    staleness: int = 0

    def __post_init__(self) -> None:
        if self.staleness < 0:
            raise ConfigError(
                f"{given('staleness', self.staleness)}: an interval is 0 or more epochs ahead of the slowest one."
            )


MakeSchedule = Callable[[TaskTable], Schedule]


def pipe(table: TaskTable) -> Schedule:
    """A task starts as soon as the values it reads are present: exact, and intervals overlap."""
    return Schedule(table, table)


def no_pipe(table: TaskTable) -> Schedule:
    """Each step finishes on all intervals before the next begins: exact, nothing overlaps (the paper's baseline)."""
    steps = [table.steps[0]]
    for index, step in enumerate(table.steps[1:], start=1):
        # The table's own needs stay: a peer's report that it has finished does not mean that its rows have arrived.
        needs = dict.fromkeys((Need(index - 1, Scope.EVERY), *step.needs))
        steps.append(replace(step, needs=tuple(needs)))
    return pipe(TaskTable(tuple(steps)))


def bounded(staleness: int) -> MakeSchedule:
    """After an exact first epoch, a task waits for its own interval only and reads the values that are present.

    Values of other intervals are at most ``staleness`` + 1 epochs old, and at most ``staleness`` ahead.
    """

    def schedule(table: TaskTable) -> Schedule:
        return Schedule(table, TaskTable(tuple(replace(step, needs=step.own_needs) for step in table.steps)), staleness)

    return schedule


def make_schedule(mode: str, staleness: int = 0) -> MakeSchedule:
    """The schedule of a mode: ``pipe``, ``no_pipe``, or ``async``, the only one that takes a staleness."""
    if mode not in MODES:
        raise ConfigError(unknown_value("mode", mode, MODES))
    if mode == "async":
        return bounded(staleness)
    if staleness:
        raise ConfigError(
            f"{given('staleness', staleness)} with {given('mode', mode)}, in which no value is stale: use "
            f"{given('mode', 'async')}, or {given('staleness', 0)}."
        )
    return pipe if mode == "pipe" else no_pipe
