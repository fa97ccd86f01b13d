"""The scheduler of one server: admits intervals to epochs within the staleness bound, and starts ready tasks.

It is a pure state machine: events in, actions out.
"""

from collections.abc import Iterable, Sequence

from dorylus.errors import ConfigError, TrainingError
from dorylus.pipeline.dependents import Dependents, OpenEpoch
from dorylus.pipeline.events import (
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
from dorylus.pipeline.staleness import Frontier, StalenessBound
from dorylus.pipeline.tasks import Reads, Task


class Scheduler:
    """Decides for the intervals of one server; events report the progress of its peers.

    Every task is started exactly once, when all it waits for is finished. Several epochs may be open at once; each
    interval is in one of them. The same events in the same order give the same actions. Reports of peers may overtake
    each other and may come before their epoch is open here, if ghosts keep the newer of two rows; the driver's events
    come in order.
    """

    def __init__(
        self, schedule: Schedule, reads: Reads, *, server: int, bounds: Sequence[int], first_epoch: int = 0
    ) -> None:
        _check(reads, server, bounds)
        self._exact = Dependents(schedule.exact, reads, server, bounds)
        self._relaxed = Dependents(schedule.relaxed, reads, server, bounds)
        self._server = server
        self._num_servers = len(bounds) - 1
        self._bound = StalenessBound(schedule.staleness, first_epoch)
        self._is_relaxed = schedule.relaxed is not schedule.exact
        self._frontier = Frontier(first_epoch, self._num_servers, len(self._exact.arrivals))
        self._last_startable = self._newest = first_epoch - 1
        self._open: dict[int, OpenEpoch] = {}
        self._idle = dict.fromkeys(reads.mine, first_epoch)  # intervals between two epochs, and the next one
        self._waiting: set[int] = set()  # the idle intervals for which Waiting was returned

    @property
    def is_synchronous(self) -> bool:
        """Whether all epochs that start from now on are exact."""
        return not self._is_relaxed or self._bound.is_exact_from_now_on

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
            self._last_startable = max(self._last_startable, event.epoch)
            return self._admit(self._idle)
        return self._synchronise(event.epoch)

    def _finished(self, task: Task) -> list[Action]:
        opened = self._open.get(task.epoch)
        ready = None if opened is None else opened.finish(task.step, task.interval)
        if opened is None or ready is None:
            raise TrainingError(f"{task} was reported finished but is not running: a task finishes exactly once.")
        actions = self._start(task.epoch, opened.dependents, ready)
        if task.step in opened.dependents.announced and opened.step_is_finished(task.step, self._server):
            actions.append(StepFinished(task.epoch, task.step))
        if opened.interval_is_finished(task.interval):
            actions += self._leave(task.epoch, task.interval)
        return actions

    def _leave(self, epoch: int, interval: int) -> list[Action]:
        """An own interval is done with an epoch; it enters the next one, if it may."""
        self._idle[interval] = epoch + 1
        if not self._open[epoch].is_finished:
            return self._admit((interval,))
        del self._open[epoch]
        moved = self._frontier.add(epoch, PeerFinished(self._server, epoch))
        return [EpochFinished(epoch), *self._admit(self._idle if moved else (interval,))]

    def _arrived(self, event: Arrived) -> list[Action]:
        task = event.task
        if (task.step, task.interval) not in self._exact.arrivals:
            return []  # no task here reads it
        return self._reported(task.epoch, event)

    def _peer_finished(self, event: PeerFinished) -> list[Action]:
        if event.server == self._server or not 0 <= event.server < self._num_servers:
            raise TrainingError(f"{event} names no peer of server {self._server} of {self._num_servers}.")
        return self._reported(event.epoch, event)

    def _reported(self, epoch: int, report: Report) -> list[Action]:
        """A peer reports. The frontier keeps reports on an epoch that is not open here until it opens."""
        moved = self._frontier.add(epoch, report)
        opened = self._open.get(epoch)
        actions = [] if opened is None else self._start(epoch, opened.dependents, opened.add(report))
        return actions + self._admit(self._idle) if moved else actions

    def _admit(self, intervals: Iterable[int]) -> list[Action]:
        """Admit idle intervals to their next epoch, lowest first; report those that only the bound holds back."""
        actions: list[Action] = []
        for interval in sorted(intervals):
            epoch = self._idle[interval]
            if epoch > self._last_startable:
                continue
            if self._frontier.epoch >= self._bound.required_frontier(epoch):
                actions += self._enter(epoch, interval)
            elif interval not in self._waiting:
                self._waiting.add(interval)
                actions.append(Waiting(interval, epoch))
        return actions

    def _enter(self, epoch: int, interval: int) -> list[Action]:
        del self._idle[interval]
        self._waiting.discard(interval)
        if epoch not in self._open:
            self._newest = epoch
            self._open[epoch] = OpenEpoch(self._exact if self._bound.is_exact(epoch) else self._relaxed)
            for report in self._frontier.reports(epoch):
                self._open[epoch].add(report)  # starts nothing: no interval has entered
        opened = self._open[epoch]
        return self._start(epoch, opened.dependents, opened.enter(interval))

    def _start(self, epoch: int, dependents: Dependents, ready: Iterable[int]) -> list[Action]:
        return [Start(dependents.task(epoch, number)) for number in ready]

    def _synchronise(self, epoch: int) -> list[Action]:
        if epoch <= self._newest:
            raise TrainingError(
                f"epochs from {epoch} on were to be exact, but epoch {self._newest} was started already: synchronise "
                "before permitting the first exact epoch."
            )
        self._bound.make_exact(epoch)
        return []  # no interval may enter by this: the bound becomes no wider


def _check(reads: Reads, server: int, bounds: Sequence[int]) -> None:
    if not 0 <= server < len(bounds) - 1 or reads.mine != range(bounds[server], bounds[server + 1]) or not reads.mine:
        raise ConfigError(
            f"server {server} of {len(bounds) - 1} with the intervals {list(reads.mine)}, but bounds={list(bounds)}: a "
            "server owns the intervals bounds[server] up to bounds[server + 1], at least one."
        )
