"""The task table: which steps an epoch has, and what each waits for.

A *step* is one row of the table (gather of layer 1, say); a *task* is that step for one interval in one epoch.
A need names an earlier step and the intervals that must have finished it:

    OWN          the same interval
    SOURCES      every interval this one gathers from (edges lead from there to here)
    READERS      every interval that gathers from this one (edges lead from here to there)
    EVERY        all intervals on all servers
    PREVIOUS     the interval before this one on the same server (the same step: accumulation in a fixed order)

Intervals are numbered over the whole cluster; a server owns a range of them.
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


DENSE = frozenset(
    {Kind.APPLY_VERTEX, Kind.APPLY_EDGE, Kind.LOSS, Kind.GRAD_APPLY_VERTEX, Kind.GRAD_APPLY_EDGE}
)  # what runs on the pool


class Scope(Enum):
    """The intervals whose part of an earlier step a task waits for."""

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
    """One row of the task table. ``phase`` orders layers: forward ones count up, then backward ones."""

    kind: Kind
    phase: int
    needs: tuple[Need, ...] = ()

    @property
    def own_needs(self) -> tuple[Need, ...]:
        """The needs that concern no other interval."""
        return tuple(need for need in self.needs if need.scope is Scope.OWN)


class Task(NamedTuple):
    """One step for one interval in one epoch."""

    epoch: int
    phase: int
    interval: int
    step: int
    kind: Kind

    # The tuple order *is* the priority: lowest epoch, then forward before backward and layer by layer (phase),
    # then interval, then step, so that one interval's values are used while they are in cache.


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
    """Which intervals read from which, for one server, whose intervals are ``mine``.

    ``sources[i - mine.start]`` are the intervals that interval i gathers from, on any server, and
    ``readers[i - mine.start]`` those that gather from i.
    """

    mine: range
    sources: tuple[frozenset[int], ...]
    readers: tuple[frozenset[int], ...]

    @property
    def num_intervals(self) -> int:
        """How many intervals the server has."""
        return len(self.mine)

    @classmethod
    def of(cls, sources: Sequence[frozenset[int]]) -> "Reads":
        """The relation and its reverse, given the sources of every interval; all intervals are on one server."""
        readers: list[set[int]] = [set() for _ in sources]
        for reader, read in enumerate(sources):
            for source in read:
                readers[source].add(reader)
        return cls(range(len(sources)), tuple(sources), tuple(frozenset(r) for r in readers))

    @classmethod
    def complete(cls, num_intervals: int) -> "Reads":
        """Every interval gathers from every interval, as in a dense graph on one server."""
        return cls.of([frozenset(range(num_intervals))] * num_intervals)
