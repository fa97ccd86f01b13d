"""The task table: which steps an epoch has, and what each waits for.

A *step* is one row of the table (gather of layer 1, say); a *task* is that step for one interval in one epoch.
A need names an earlier step and whose part of it must be finished:

    OWN          the same interval's
    SOURCES      every interval this one gathers from (edges lead from there to here)
    READERS      every interval that gathers from this one (edges lead from here to there)
    EVERY        all intervals'
    PREVIOUS     the interval before this one (the same step: accumulation in a fixed order)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple

from dorylus.errors import ConfigError


class Kind(StrEnum):
    """The nine tasks of the paper, and the fused last ApplyVertex with loss and gradient."""

    GATHER = "GA"
    APPLY_VERTEX = "AV"
    SCATTER = "SC"
    APPLY_EDGE = "AE"
    LOSS = "AV+loss+∇AV"
    GRAD_GATHER = "∇GA"
    GRAD_APPLY_VERTEX = "∇AV"
    GRAD_SCATTER = "∇SC"
    GRAD_APPLY_EDGE = "∇AE"
    WEIGHT_UPDATE = "WU"


class Scope(Enum):
    """Whose part of an earlier step a task waits for."""

    OWN = "own"
    SOURCES = "sources"
    READERS = "readers"
    EVERY = "every"
    PREVIOUS = "previous"


class Need(NamedTuple):
    """One thing a step waits for."""

    step: int
    scope: Scope


@dataclass(frozen=True, slots=True)
class Step:
    """One row of the task table. ``phase`` orders layers: forward ones count up, then backward ones.

    A step with ``once`` has a single task an epoch (interval 0) instead of one per interval.
    """

    kind: Kind
    phase: int
    needs: tuple[Need, ...] = ()
    once: bool = False


class Task(NamedTuple):
    """One step for one interval in one epoch."""

    epoch: int
    phase: int
    interval: int
    step: int
    kind: Kind

    # The tuple order *is* the priority: lowest epoch, then forward before backward and layer by layer (phase),
    # then interval, then step, so that one interval's values are used while they are still warm.


@dataclass(frozen=True)
class TaskTable:
    """The steps of one epoch in an order in which they could run one after another."""

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        for index, step in enumerate(self.steps):
            for need in step.needs:
                if need.step > index or (need.step == index and need.scope is not Scope.PREVIOUS):
                    raise ConfigError(
                        f"step {index} ({step.kind}) waits for step {need.step}, which does not come before it: "
                        "order the steps of a task table so that each only looks back."
                    )

    def task(self, epoch: int, step: int, interval: int) -> Task:
        """The task of one step, interval and epoch."""
        row = self.steps[step]
        return Task(epoch, row.phase, interval, step, row.kind)


@dataclass(frozen=True)
class Reads:
    """Which intervals each interval gathers from: ``sources[i]`` holds i's sources, ``readers[i]`` the reverse."""

    sources: tuple[frozenset[int], ...]
    readers: tuple[frozenset[int], ...]

    @property
    def num_intervals(self) -> int:
        """How many intervals there are."""
        return len(self.sources)

    @classmethod
    def of(cls, sources: Sequence[frozenset[int]]) -> "Reads":
        """The relation and its reverse from the sources of every interval."""
        readers: list[set[int]] = [set() for _ in sources]
        for reader, read in enumerate(sources):
            for source in read:
                readers[source].add(reader)
        return cls(tuple(sources), tuple(frozenset(r) for r in readers))

    @classmethod
    def complete(cls, num_intervals: int) -> "Reads":
        """Every interval gathers from every other: what a dense graph looks like."""
        return cls.of([frozenset(range(num_intervals))] * num_intervals)
