"""Schedules: how much of the task table's freedom is used. Each turns a table into a stricter or equal one."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from dorylus.pipeline.tasks import Need, Scope, TaskTable

Schedule = Callable[[TaskTable], TaskTable]


def pipe(table: TaskTable) -> TaskTable:
    """A task starts as soon as the values it reads are there: exact, and intervals overlap."""
    return table


def no_pipe(table: TaskTable) -> TaskTable:
    """Each step finishes everywhere before the next begins: exact, nothing overlaps (the paper's baseline)."""
    steps = [table.steps[0]]
    for index, step in enumerate(table.steps[1:], start=1):
        kept = tuple(need for need in step.needs if need.scope is Scope.PREVIOUS)
        steps.append(replace(step, needs=(Need(index - 1, Scope.EVERY), *kept)))
    return TaskTable(tuple(steps))


SCHEDULES: Mapping[str, Schedule] = {"pipe": pipe, "no_pipe": no_pipe}
