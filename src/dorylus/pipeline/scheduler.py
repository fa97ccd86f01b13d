"""The pure scheduler: lets intervals into epochs as the bound permits, and starts tasks when nothing holds them.

One epoch that is open on this server: what each of its tasks still waits for.

The frontier: up to which epoch everything is over everywhere, as far as one server has heard.
"""

from collections.abc import Collection, Iterable, Sequence

from dorylus.errors import ConfigError, TrainingError
from dorylus.pipeline.dependents import Dependents
from dorylus.pipeline.messages import (
    Action,
    Arrived,
    EpochFinished,
    Event,
    Finished,
    PeerFinished,
    Permit,
    Report,
    Start,
    StepFinished,
    Waiting,
)
from dorylus.pipeline.schedules import Schedule
from dorylus.pipeline.tasks import Reads, Task


class OpenEpoch:
    """Counts down what every task of one epoch waits for; tasks are numbered as the plan numbers them."""

    def __init__(self, plan: Dependents) -> None:
        self.plan = plan
        self._unmet = plan.unmet.copy()
        self._missing = plan.sizes.copy()
        self._left = [len(plan.table.steps)] * plan.width
        self._intervals = plan.width
        self._running: set[int] = set()

    def enter(self, interval: int) -> list[int]:
        """An own interval enters the epoch; gives the tasks that may now run."""
        return self._release(self.plan.gates[interval - self.plan.mine.start])

    def finish(self, step: int, interval: int) -> list[int] | None:
        """A task of this server is done; gives those that may now run, or None where it was not running."""
        if interval not in self.plan.mine:
            return None
        local = interval - self.plan.mine.start
        task = step * self.plan.width + local
        if task not in self._running:
            return None
        self._running.remove(task)
        self._left[local] -= 1
        self._intervals -= self._left[local] == 0
        return self._done(step, interval)

    def hear(self, report: Report) -> list[int]:
        """A peer reports; gives the tasks that may now run."""
        if isinstance(report, Arrived):
            return self._done(report.task.step, report.task.interval)
        return [] if report.step is None else self._release(self.plan.told.get((report.step, report.server), ()))

    def step_is_finished(self, step: int, server: int) -> bool:
        """Whether all intervals of the server are done with the step."""
        return self._missing[step, server] == 0

    def interval_is_finished(self, interval: int) -> bool:
        """Whether an own interval is done with the epoch."""
        return self._left[interval - self.plan.mine.start] == 0

    @property
    def is_finished(self) -> bool:
        """Whether all own intervals are done with the epoch."""
        return self._intervals == 0

    def _done(self, step: int, interval: int) -> list[int]:
        ready = self._release(self.plan.each.get((step, interval), ()))
        group = (step, self.plan.owner[interval])
        if group in self._missing:
            self._missing[group] -= 1
            if self._missing[group] == 0:
                ready += self._release(self.plan.whole.get(group, ()))
        return ready

    def _release(self, waiting: Iterable[int]) -> list[int]:
        ready = []
        for task in waiting:
            self._unmet[task] -= 1
            if self._unmet[task] == 0:
                ready.append(task)
        self._running.update(ready)
        return ready


class Frontier:
    """``over`` is the newest epoch that is over, and so are all before it.

    An epoch is over when every server has said so *and* all rows that are read here have arrived: with the word alone,
    a message that overtakes another would let an interval read values older than the bound. Reports may come in any
    order, each once.
    """

    def __init__(self, first_epoch: int, num_servers: int, num_arrivals: int) -> None:
        self.over = first_epoch - 1
        self._everything = num_servers + num_arrivals
        self._missing: dict[int, int] = {}
        self._heard: dict[int, dict[Report, None]] = {}

    def hear(self, epoch: int, report: Report) -> bool:
        """Take in what a server (this one too) reports of an epoch; whether the frontier moves."""
        if epoch <= self.over or report in self._heard.get(epoch, ()):
            raise TrainingError(f"{report} was heard before: a server reports each task, step and epoch exactly once.")
        self._heard.setdefault(epoch, {})[report] = None
        if isinstance(report, Arrived) or report.step is None:
            self._missing[epoch] = self._missing.get(epoch, self._everything) - 1
        return self._move()

    def heard(self, epoch: int) -> Collection[Report]:
        """What was reported of an epoch that is not over, in order."""
        return self._heard.get(epoch, {}).keys()

    def _move(self) -> bool:
        before = self.over
        while self._missing.get(self.over + 1) == 0:
            self.over += 1
            del self._missing[self.over], self._heard[self.over]
        return self.over > before


class Scheduler:
    """Decides for the intervals of one server; what the peers do it hears by events.

    Every task is started exactly once, when all it waits for is finished. Several epochs are open at once, each
    interval in one of them. Deterministic given the order of events. The peers' reports may overtake each other and
    come before their epoch is open here, if ghosts keep the newer of two rows; the driver's events come in order.
    """

    def __init__(
        self, schedule: Schedule, reads: Reads, *, server: int, bounds: Sequence[int], first_epoch: int = 0
    ) -> None:
        _check(reads, server, bounds)
        self._exact = Dependents(schedule.exact, reads, server, bounds)
        self._relaxed = Dependents(schedule.relaxed, reads, server, bounds)
        self._staleness = schedule.staleness
        self._is_relaxed = schedule.relaxed is not schedule.exact
        self._server = server
        self._num_servers = len(bounds) - 1
        self._first_epoch = first_epoch
        self._exact_from: int | None = None  # since a Synchronise
        self._permitted = self._newest = first_epoch - 1
        self._frontier = Frontier(first_epoch, self._num_servers, len(self._exact.arrivals))
        self._open: dict[int, OpenEpoch] = {}
        self._idle = dict.fromkeys(reads.mine, first_epoch)  # intervals between two epochs, and the next one
        self._waiting: set[int] = set()  # those of them of which Waiting was said

    def handle(self, event: Event) -> list[Action]:
        """The actions that follow from one event."""
        # Not a match statement: this is called thousands of times a second, under the engine's lock.
        if isinstance(event, Finished):
            return self._finished(event.task)
        if isinstance(event, Arrived):
            return self._arrived(event)
        if isinstance(event, PeerFinished):
            return self._peer_finished(event)
        if isinstance(event, Permit):
            self._permitted = max(self._permitted, event.epoch)
            return self._admit(self._idle)
        return self._synchronise(event.epoch)

    def _finished(self, task: Task) -> list[Action]:
        progress = self._open.get(task.epoch)
        ready = None if progress is None else progress.finish(task.step, task.interval)
        if progress is None or ready is None:
            raise TrainingError(f"{task} was reported finished but is not running: a task finishes exactly once.")
        actions = self._start(task.epoch, progress.plan, ready)
        if task.step in progress.plan.announced and progress.step_is_finished(task.step, self._server):
            actions.append(StepFinished(task.epoch, task.step))
        if progress.interval_is_finished(task.interval):
            actions += self._leave(task.epoch, task.interval)
        return actions

    def _leave(self, epoch: int, interval: int) -> list[Action]:
        """An own interval is done with an epoch: the next one, if it may."""
        self._idle[interval] = epoch + 1
        if not self._open[epoch].is_finished:
            return self._admit((interval,))
        del self._open[epoch]
        moved = self._frontier.hear(epoch, PeerFinished(self._server, epoch))
        return [EpochFinished(epoch), *self._admit(self._idle if moved else (interval,))]

    def _arrived(self, event: Arrived) -> list[Action]:
        task = event.task
        if (task.step, task.interval) not in self._exact.arrivals:
            return []  # nobody here reads it
        return self._heard(task.epoch, event)

    def _peer_finished(self, event: PeerFinished) -> list[Action]:
        if event.server == self._server or not 0 <= event.server < self._num_servers:
            raise TrainingError(f"{event} names no peer of server {self._server} of {self._num_servers}.")
        return self._heard(event.epoch, event)

    def _heard(self, epoch: int, report: Report) -> list[Action]:
        """A peer reports: of an epoch that is not open yet, it is looked up when it opens."""
        moved = self._frontier.hear(epoch, report)
        progress = self._open.get(epoch)
        actions = [] if progress is None else self._start(epoch, progress.plan, progress.hear(report))
        return actions + self._admit(self._idle) if moved else actions

    def _admit(self, intervals: Iterable[int]) -> list[Action]:
        """Let idle intervals into their next epoch, lowest first; say which only the bound holds."""
        actions: list[Action] = []
        for interval in sorted(intervals):
            epoch = self._idle[interval]
            if epoch > self._permitted:
                continue
            if self._frontier.over >= self._bound(epoch):
                actions += self._enter(epoch, interval)
            elif interval not in self._waiting:
                self._waiting.add(interval)
                actions.append(Waiting(interval, epoch))
        return actions

    def _bound(self, epoch: int) -> int:
        """The epoch that must be over everywhere before an interval may start this one."""
        return epoch - 1 - (0 if self._is_exact(epoch) or self._is_exact(epoch - 1) else self._staleness)

    @property
    def is_synchronous(self) -> bool:
        """Whether all epochs that start from now on are exact."""
        return not self._is_relaxed or self._exact_from is not None

    def _is_exact(self, epoch: int) -> bool:
        return epoch <= self._first_epoch or (self._exact_from is not None and epoch >= self._exact_from)

    def _enter(self, epoch: int, interval: int) -> list[Action]:
        del self._idle[interval]
        self._waiting.discard(interval)
        if epoch not in self._open:
            self._newest = epoch
            self._open[epoch] = OpenEpoch(self._exact if self._is_exact(epoch) else self._relaxed)
            for report in self._frontier.heard(epoch):
                self._open[epoch].hear(report)  # starts nothing: no interval has entered
        progress = self._open[epoch]
        return self._start(epoch, progress.plan, progress.enter(interval))

    def _start(self, epoch: int, plan: Dependents, ready: Iterable[int]) -> list[Action]:
        return [Start(plan.task(epoch, number)) for number in ready]

    def _synchronise(self, epoch: int) -> list[Action]:
        if epoch <= self._newest:
            raise TrainingError(
                f"epochs from {epoch} on were to be exact, but epoch {self._newest} was started already: synchronise "
                "before permitting the first exact epoch."
            )
        self._exact_from = epoch if self._exact_from is None else min(self._exact_from, epoch)
        return []  # who waits now waits still: the bound has become no wider


def _check(reads: Reads, server: int, bounds: Sequence[int]) -> None:
    if not 0 <= server < len(bounds) - 1 or reads.mine != range(bounds[server], bounds[server + 1]) or not reads.mine:
        raise ConfigError(
            f"server {server} of {len(bounds) - 1} with the intervals {list(reads.mine)}, but bounds={list(bounds)}: a "
            "server owns the intervals bounds[server] up to bounds[server + 1], at least one."
        )
