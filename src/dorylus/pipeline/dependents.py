"""A task table turned round for one server: for everything that can happen, which tasks wait for it.

Made once and used every epoch. A need for *all* intervals of a server counts once, by the last of them, also where
an interval merely happens to read from all of them: dense graphs cost no quadratic book-keeping.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from dorylus.errors import ConfigError
from dorylus.pipeline.tasks import Kind, Reads, Scope, Task, TaskTable

Cell = tuple[int, int]  # (step, interval): a task of whichever epoch
Group = tuple[int, int]  # (step, server): all of a server's tasks of one step

_SENT = {Scope.SOURCES: Kind.SCATTER, Scope.READERS: Kind.GRAD_SCATTER}  # what tells other servers of a cell


class Dependents:
    """What each task of one server's intervals waits for, and who waits for what.

    Own tasks are numbered ``step * width + (interval - first)``; ``unmet[task]`` is how many things it waits for. The
    lists of waiting tasks are keyed by what happens: ``each`` by a finished cell (one's own, or a peer's whose rows
    have arrived), ``whole`` by the last cell of a group, ``told`` by a peer that says it finished a step, and
    ``gates`` by an own interval that enters the epoch.
    """

    def __init__(self, table: TaskTable, reads: Reads, server: int, bounds: Sequence[int]) -> None:
        if len(bounds) > 2:
            _check_sent(table)
        self.table = table
        self.mine = reads.mine
        self.width = len(reads.mine)
        self.owner = [k for k, (first, end) in enumerate(pairwise(bounds)) for _ in range(first, end)]
        self.each: dict[Cell, list[int]] = defaultdict(list)
        self.whole: dict[Group, list[int]] = defaultdict(list)
        self.told: dict[Group, list[int]] = defaultdict(list)
        self.gates: list[list[int]] = [[] for _ in reads.mine]
        self.unmet = [0] * (len(table.steps) * self.width)
        self.announced = frozenset(n.step for step in table.steps for n in step.needs if n.scope is Scope.EVERY)
        self._server = server
        self._bounds = bounds
        for interval in reads.mine:
            self._add(interval, reads)
        self.sizes = {(step, k): bounds[k + 1] - bounds[k] for step, k in self.whole}
        self.sizes |= {(step, server): self.width for step in range(len(table.steps))}
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
            Scope.EVERY: frozenset(reads.mine),  # of the peers one is told
        }
        split: dict[frozenset[Scope], tuple[list[int], list[int]]] = {}  # steps share needs: look at each once
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
                self._wait_for(task, self.gates[local])

    def _split(self, awaited: frozenset[int]) -> tuple[list[int], list[int]]:
        """The servers whose intervals are all awaited, and the other intervals."""
        count = Counter(self.owner[interval] for interval in awaited)
        servers = [k for k in sorted(count) if count[k] == self._bounds[k + 1] - self._bounds[k]]
        return servers, sorted(i for i in awaited if self.owner[i] not in servers)

    def _wait(self, task: int, needed: int, servers: Iterable[int], intervals: Iterable[int], *, every: bool) -> None:
        for interval in intervals:
            self._wait_for(task, self.each[needed, interval])
        for server in servers:
            self._wait_for(task, self.whole[needed, server])
        for server in range(len(self._bounds) - 1) if every else ():
            if server != self._server:
                self._wait_for(task, self.told[needed, server])

    def _wait_for(self, task: int, waiting: list[int]) -> None:
        waiting.append(task)
        self.unmet[task] += 1

    def _arrivals(self) -> Iterable[Cell]:
        """The peers' cells that some task here waits for."""
        yield from (cell for cell in self.each if cell[1] not in self.mine)
        for step, server in self.whole:
            if server != self._server:
                yield from ((step, interval) for interval in range(self._bounds[server], self._bounds[server + 1]))


def _check_sent(table: TaskTable) -> None:
    for index, step in enumerate(table.steps):
        for need in step.needs:
            kind, sent = table.steps[need.step].kind, _SENT.get(need.scope)
            if sent is not None and kind is not sent:
                raise ConfigError(
                    f"step {index} ({step.kind}) waits for step {need.step} ({kind}) of its {need.scope.value}, but "
                    f"only {sent} sends word to those of them that are on other servers: let it wait for that."
                )
