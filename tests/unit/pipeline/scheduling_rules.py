"""The scheduler's rules in a slow and simple form: what one server may do, from all events it has received so far."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

from clusters import Case, Cell

from dorylus.pipeline import (
    Arrived,
    EpochFinished,
    Event,
    Finished,
    PeerFinished,
    Permit,
    Scope,
    StepFinished,
    Task,
    Waiting,
)

T = TypeVar("T")
Group = tuple[int, int | None]  # (server, step), or with None the whole epoch


class Rules:
    """What one server knows. Each ``newly_`` method returns what has become true since its last call."""

    def __init__(self, case: Case, server: int) -> None:
        self.case = case
        self.mine = case.intervals_of(server)
        self.steps = range(len(case.table.steps))
        self.peers = [k for k in range(case.num_servers) if k != server]
        self.last_startable = self.over = case.first_epoch - 1
        self.done: dict[int, set[Cell]] = defaultdict(set)  # by epoch: own cells finished, peers' arrived
        self.reported: dict[int, set[Group]] = defaultdict(set)  # by epoch: what peers have finished
        self.epoch = dict.fromkeys(self.mine, case.first_epoch)  # the one each interval is in, or enters next
        self.needs = {(x, s, i): self._needs(x, s, i) for x in (True, False) for s in self.steps for i in self.mine}
        exact = (cells for (x, _, _), (cells, _) in self.needs.items() if x)
        self.everything = {(s, i) for s in self.steps for i in self.mine}.union(
            *exact
        )  # of an epoch: all that is reported
        self._returned: set[object] = set()

    def _needs(self, exact: bool, step: int, interval: int) -> tuple[set[Cell], set[Group]]:
        """The cells a task waits for, and the groups that peers must report to its server."""
        table, reads = self.case.schedule.exact if exact else self.case.schedule.relaxed, self.case.all_reads
        every = [need.step for need in table.steps[step].needs if need.scope is Scope.EVERY]
        cells = {(s, i) for s in every for i in self.mine}
        for need in table.steps[step].needs:
            others = {
                Scope.OWN: {interval},
                Scope.SOURCES: reads.sources[interval],
                Scope.READERS: reads.readers[interval],
                Scope.PREVIOUS: {interval - 1} & set(self.mine),
            }.get(need.scope, ())
            cells |= {(need.step, i) for i in others}
        return cells, {(k, s) for s in every for k in self.peers}

    def receive(self, event: Event) -> None:
        """Take in one event."""
        if isinstance(event, Permit):
            self.last_startable = max(self.last_startable, event.epoch)
        elif isinstance(event, Finished | Arrived):
            self.done[event.task.epoch].add((event.task.step, event.task.interval))
        elif isinstance(event, PeerFinished):
            self.reported[event.epoch].add((event.server, event.step))
        while self._is_over(self.over + 1):
            self.over += 1
        for interval, epoch in self.epoch.items():
            self.epoch[interval] += all((s, interval) in self.done[epoch] for s in self.steps)

    def newly_due(self) -> list[Task]:
        """Tasks whose interval may be in the epoch and whose needs are all met."""
        inside = [(i, e) for i, e in self.epoch.items() if e <= self.last_startable and self.over >= self.case.bound(e)]
        return self._new(self.case.table.task(e, s, i) for i, e in inside for s in self.steps if self._met(e, s, i))

    def newly_waiting(self) -> list[Waiting]:
        """Intervals that are permitted their next epoch, but not by the bound."""
        held = [(i, e) for i, e in self.epoch.items() if e <= self.last_startable and self.over < self.case.bound(e)]
        return self._new(Waiting(i, e) for i, e in held)

    def newly_finished_steps(self) -> list[StepFinished]:
        """Steps that own intervals have all finished and that some task, here or on a peer, needs of every interval."""
        found = []
        for epoch, done in self.done.items():
            table = self.case.schedule.exact if self.case.is_exact(epoch) else self.case.schedule.relaxed
            every = {need.step for step in table.steps for need in step.needs if need.scope is Scope.EVERY}
            found += [StepFinished(epoch, s) for s in every if all((s, i) in done for i in self.mine)]
        return sorted(self._new(found))

    def newly_finished_epochs(self) -> list[EpochFinished]:
        """Epochs that own intervals have all finished."""
        return self._new(EpochFinished(e) for e in sorted(self.done) if e < min(self.epoch.values()))

    def _met(self, epoch: int, step: int, interval: int) -> bool:
        cells, groups = self.needs[self.case.is_exact(epoch), step, interval]
        return cells <= self.done[epoch] and groups <= self.reported[epoch]

    def _is_over(self, epoch: int) -> bool:
        return self.everything <= self.done[epoch] and {(k, None) for k in self.peers} <= self.reported[epoch]

    def _new(self, found: Iterable[T]) -> list[T]:
        new = [each for each in found if (type(each), each) not in self._returned]
        self._returned.update((type(each), each) for each in new)
        return new
