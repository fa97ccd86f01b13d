"""The pure scheduler: counts what every task still waits for, and starts it when that is nothing."""

from collections.abc import Iterator

from dorylus.errors import TrainingError
from dorylus.pipeline.messages import Action, EpochFinished, Event, Finished, Permit, Start
from dorylus.pipeline.tasks import Need, Reads, Scope, TaskTable


class Scheduler:
    """Starts every task exactly once, when all it waits for is finished; deterministic given the order of events.

    Epochs run one after the other: an epoch opens when it is permitted and the one before is finished.
    """

    def __init__(self, table: TaskTable, reads: Reads, *, first_epoch: int = 0) -> None:
        self._table = table
        self._reads = reads
        self._plan = _Plan(table, reads)
        self._epoch = first_epoch - 1  # the newest epoch opened
        self._permitted = first_epoch - 1
        self._running: set[tuple[int, int]] = set()
        self._unmet: list[list[int]] = []
        self._unfinished: list[int] = []
        self._left = 0

    def handle(self, event: Event) -> list[Action]:
        """The actions that follow from one event."""
        if isinstance(event, Permit):
            self._permitted = max(self._permitted, event.epoch)
            return self._open_epoch() if self._left == 0 else []
        return self._finish(event)

    def _open_epoch(self) -> list[Action]:
        if self._epoch >= self._permitted:
            return []
        self._epoch += 1
        self._unmet = [list(row) for row in self._plan.unmet]
        self._unfinished = [len(row) for row in self._unmet]
        self._left = sum(self._unfinished)
        ready = [(s, i) for s, row in enumerate(self._unmet) for i, count in enumerate(row) if count == 0]
        return [self._start(step, interval) for step, interval in ready]

    def _finish(self, event: Finished) -> list[Action]:
        step, interval = event.task.step, event.task.interval
        if event.task.epoch != self._epoch or (step, interval) not in self._running:
            raise TrainingError(f"{event.task} was reported finished but is not running: a task finishes exactly once.")
        self._running.remove((step, interval))
        self._unfinished[step] -= 1
        self._left -= 1
        actions: list[Action] = []
        for waiting_step, waiting in self._plan.released_by(step, interval, self._unfinished[step] == 0):
            self._unmet[waiting_step][waiting] -= 1
            if self._unmet[waiting_step][waiting] == 0:
                actions.append(self._start(waiting_step, waiting))
        if self._left == 0:
            actions.append(EpochFinished(self._epoch))
            actions.extend(self._open_epoch())
        return actions

    def _start(self, step: int, interval: int) -> Start:
        self._running.add((step, interval))
        return Start(self._table.task(self._epoch, step, interval))


class _Plan:
    """The table turned round: for every step, who waits for it. Made once, used every epoch.

    ``unmet[step][interval]`` is how many finishes that task waits for. A need for *every* interval counts as one
    (the last finish), also where an interval happens to read from all of them: dense graphs then cost no
    quadratic book-keeping.
    """

    def __init__(self, table: TaskTable, reads: Reads) -> None:
        self._num_intervals = reads.num_intervals
        self.unmet = [[0] * (1 if step.once else reads.num_intervals) for step in table.steps]
        self._each: list[dict[int, list[tuple[int, int]]]] = [{} for _ in table.steps]
        self._last: list[list[tuple[int, int]]] = [[] for _ in table.steps]
        for index, step in enumerate(table.steps):
            for need in step.needs:
                self._add(table, reads, index, need)

    def _add(self, table: TaskTable, reads: Reads, index: int, need: Need) -> None:
        everyone = len(self.unmet[need.step])
        for interval in range(len(self.unmet[index])):
            awaited = _awaited(need.scope, interval, reads, table.steps[need.step].once)
            if need.scope is Scope.EVERY or (len(awaited) == everyone and need.step != index):
                self._last[need.step].append((index, interval))
                self.unmet[index][interval] += 1
                continue
            for other in awaited:
                self._each[need.step].setdefault(other, []).append((index, interval))
                self.unmet[index][interval] += 1

    def released_by(self, step: int, interval: int, last: bool) -> Iterator[tuple[int, int]]:
        """The (step, interval) pairs that wait for one thing less; ``last`` when the whole step is now finished."""
        yield from self._each[step].get(interval, ())
        if last:
            yield from self._last[step]


def _awaited(scope: Scope, interval: int, reads: Reads, once: bool) -> list[int]:
    if once:
        return [0]
    if scope is Scope.OWN:
        return [interval]
    if scope is Scope.SOURCES:
        return sorted(reads.sources[interval])
    if scope is Scope.READERS:
        return sorted(reads.readers[interval])
    if scope is Scope.PREVIOUS:
        return [interval - 1] if interval else []
    return []
