"""The dependents of every task: a task table inverted for one server, and counts of unmet needs in an open epoch.

The inverted table is made once and used in every epoch. A need for *all* intervals of a server counts once, met by the
last of them, also where an interval happens to read from all of them. So dense graphs need no quadratic bookkeeping.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from dorylus.errors import ConfigError
from dorylus.pipeline.events import Arrived, Report
from dorylus.pipeline.tasks import Kind, Reads, Scope, Task, TaskTable

Cell = tuple[int, int]  # (step, interval): a task of any epoch
Group = tuple[int, int]  # (step, server): all of a server's tasks of one step

_SENDING_KIND = {Scope.SOURCES: Kind.SCATTER, Scope.READERS: Kind.GRAD_SCATTER}  # the tasks whose rows reach peers


class Dependents:
    """For one server: what each of its tasks waits for, and for each happening the tasks that wait for it.

    Own tasks are numbered ``step * width + (interval - first)``; ``unmet[task]`` is the number of its needs. Waiting
    tasks are listed by what they wait for: ``after_cell``, a finished cell (an own one, or a peer's whose rows have
    arrived); ``after_group``, the last cell of a group; ``after_peer_step``, a peer's report that it has finished a
    step; ``after_entry``, an own interval's entry into the epoch.
    """

    def __init__(self, table: TaskTable, reads: Reads, server: int, bounds: Sequence[int]) -> None:
        if len(bounds) > 2:
            _check_sent(table)
        self.table = table
        self.mine = reads.mine
        self.width = len(reads.mine)
        self.owner = [k for k, (first, end) in enumerate(pairwise(bounds)) for _ in range(first, end)]
        self.after_cell: dict[Cell, list[int]] = defaultdict(list)
        self.after_group: dict[Group, list[int]] = defaultdict(list)
        self.after_peer_step: dict[Group, list[int]] = defaultdict(list)
        self.after_entry: list[list[int]] = [[] for _ in reads.mine]
        self.unmet = [0] * (len(table.steps) * self.width)
        self.announced = frozenset(n.step for step in table.steps for n in step.needs if n.scope is Scope.EVERY)
        self._server = server
        self._bounds = bounds
        for interval in reads.mine:
            self._add(interval, reads)
        self.group_sizes = {(step, k): bounds[k + 1] - bounds[k] for step, k in self.after_group}
        self.group_sizes |= {(step, server): self.width for step in range(len(table.steps))}
        self.arrivals = frozenset(self._arrivals())

    def task(self, epoch: int, number: int) -> Task:
        """The task that has this number, in an epoch."""
        step, local = divmod(number, self.width)
        return self.table.task(epoch, step, self.mine.start + local)

    def _add(self, interval: int, reads: Reads) -> None:
        """Enter everything the tasks of one interval wait for."""
        local = interval - reads.mine.start
        awaited = {
            Scope.OWN: frozenset((interval,)),
            Scope.SOURCES: reads.sources[local],
            Scope.READERS: reads.readers[local],
            Scope.PREVIOUS: frozenset((interval - 1,)) if local else frozenset(),
            Scope.EVERY: frozenset(reads.mine),  # peers report whole steps
        }
        split: dict[frozenset[Scope], tuple[list[int], list[int]]] = {}  # steps share scopes: split each once
        for index, step in enumerate(self.table.steps):
            task = index * self.width + local
            scopes: dict[int, set[Scope]] = defaultdict(set)
            for need in step.needs:
                scopes[need.step].add(need.scope)
            for needed, among in scopes.items():
                key = frozenset(among)
                if key not in split:
                    split[key] = self._split(frozenset().union(*(awaited[scope] for scope in key)))
                self._wait(task, needed, *split[key], every=Scope.EVERY in key)
            if not step.own_needs:
                self._wait_for(task, self.after_entry[local])

    def _split(self, awaited: frozenset[int]) -> tuple[list[int], list[int]]:
        """The servers whose intervals are all awaited, and the other intervals."""
        count = Counter(self.owner[interval] for interval in awaited)
        servers = [k for k in sorted(count) if count[k] == self._bounds[k + 1] - self._bounds[k]]
        return servers, sorted(i for i in awaited if self.owner[i] not in servers)

    def _wait(self, task: int, needed: int, servers: Iterable[int], intervals: Iterable[int], *, every: bool) -> None:
        for interval in intervals:
            self._wait_for(task, self.after_cell[needed, interval])
        for server in servers:
            self._wait_for(task, self.after_group[needed, server])
        for server in range(len(self._bounds) - 1) if every else ():
            if server != self._server:
                self._wait_for(task, self.after_peer_step[needed, server])

    def _wait_for(self, task: int, waiting: list[int]) -> None:
        waiting.append(task)
        self.unmet[task] += 1

    def _arrivals(self) -> Iterable[Cell]:
        """The peers' cells that some task here waits for."""
        yield from (cell for cell in self.after_cell if cell[1] not in self.mine)
        for step, server in self.after_group:
            if server != self._server:
                yield from ((step, interval) for interval in range(self._bounds[server], self._bounds[server + 1]))


def _check_sent(table: TaskTable) -> None:
    for index, step in enumerate(table.steps):
        for need in step.needs:
            kind, sending = table.steps[need.step].kind, _SENDING_KIND.get(need.scope)
            if sending is not None and kind is not sending:
                raise ConfigError(
                    f"step {index} ({step.kind}) waits for step {need.step} ({kind}) of its {need.scope.value}, but "
                    f"only {sending} sends its rows to {need.scope.value} on other servers: make it wait for {sending}."
                )


class OpenEpoch:
    """Counts down what every task of one epoch waits for; tasks are numbered as in :class:`Dependents`."""

    def __init__(self, dependents: Dependents) -> None:
        self.dependents = dependents
        self._unmet = dependents.unmet.copy()
        self._group_left = dependents.group_sizes.copy()
        self._steps_left = [len(dependents.table.steps)] * dependents.width
        self._intervals_left = dependents.width
        self._running: set[int] = set()

    def enter(self, interval: int) -> list[int]:
        """An own interval enters the epoch; returns the tasks that may now run."""
        return self._release(self.dependents.after_entry[interval - self.dependents.mine.start])

    def finish(self, step: int, interval: int) -> list[int] | None:
        """A task of this server is done; returns the tasks that may now run, or None if it was not running."""
        if interval not in self.dependents.mine:
            return None
        local = interval - self.dependents.mine.start
        task = step * self.dependents.width + local
        if task not in self._running:
            return None
        self._running.remove(task)
        self._steps_left[local] -= 1
        self._intervals_left -= self._steps_left[local] == 0
        return self._cell_done(step, interval)

    def add(self, report: Report) -> list[int]:
        """A peer reports; returns the tasks that may now run."""
        if isinstance(report, Arrived):
            return self._cell_done(report.task.step, report.task.interval)
        if report.step is None:
            return []
        return self._release(self.dependents.after_peer_step.get((report.step, report.server), ()))

    def step_is_finished(self, step: int, server: int) -> bool:
        """Whether all intervals of the server are done with the step."""
        return self._group_left[step, server] == 0

    def interval_is_finished(self, interval: int) -> bool:
        """Whether an own interval is done with the epoch."""
        return self._steps_left[interval - self.dependents.mine.start] == 0

    @property
    def is_finished(self) -> bool:
        """Whether all own intervals are done with the epoch."""
        return self._intervals_left == 0

    def _cell_done(self, step: int, interval: int) -> list[int]:
        ready = self._release(self.dependents.after_cell.get((step, interval), ()))
        group = (step, self.dependents.owner[interval])
        if group in self._group_left:
            self._group_left[group] -= 1
            if self._group_left[group] == 0:
                ready += self._release(self.dependents.after_group.get(group, ()))
        return ready

    def _release(self, waiting: Iterable[int]) -> list[int]:
        ready = []
        for task in waiting:
            self._unmet[task] -= 1
            if self._unmet[task] == 0:
                ready.append(task)
        self._running.update(ready)
        return ready
