"""A cluster without threads or sockets: schedulers, their undelivered messages, and tasks that finish at any time.

The cluster records and checks nothing. A running task first *begins* (it reads what is there and uses weights) and
later *finishes* (it reads what is there by then; what it saw lies between the two). Messages overtake each other
unless the case sets ``fifo``; only the driver's arrive in order.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

from clusters import Case, Cell
from task_tables import SENT

from dorylus.errors import TrainingError
from dorylus.pipeline import (
    DENSE,
    Action,
    Arrived,
    EpochFinished,
    Event,
    Finished,
    Kind,
    PeerFinished,
    Start,
    StepFinished,
    Task,
)


class Read(NamedTuple):
    """A value that a task found: the epoch it was made in, or None where there was none."""

    task: Task
    cell: Cell
    epoch: int | None


class Use(NamedTuple):
    """A dense task, the newest version of the weights when it began, and the version it was given."""

    task: Task
    newest: int
    given: Any


class Token(NamedTuple):
    """Something that may happen next: a message is delivered, or a task begins or finishes."""

    server: int
    slow: bool
    messages: deque[Event] | None = None
    task: Task | None = None
    begun: bool = False


Choose = Callable[[list[Token]], int]


def at_random(case: Case) -> Choose:
    """Picks any token, slow ones rarely; the newest more often than others where the case requests it."""
    random = Random(case.seed).random

    def pick(count: int) -> int:
        return count - 1 if random() < case.newest else int(random() * count)

    def choose(tokens: list[Token]) -> int:
        index = pick(len(tokens))
        if tokens[index].slow and random() >= case.patience:
            fast = [other for other, token in enumerate(tokens) if not token.slow]
            return fast[pick(len(fast))] if fast else index
        return index

    return choose


def in_lock_step(tokens: list[Token]) -> int:
    """Delivers every message first; then runs the tasks of a step, one after another, before the next step's."""

    def rank(index: int) -> tuple[int, ...]:
        task = tokens[index].task
        return (0, index) if task is None else (1, task.epoch, task.step, task.interval)

    return min(range(len(tokens)), key=rank)


class SimulatedCluster:
    """Runs a case to its end, or until a scheduler or stash refuses to go on (``error``)."""

    def __init__(self, case: Case, scheduler_class: type, stash_class: type) -> None:
        self.case = case
        self.schedulers = [
            scheduler_class(case.schedule, case.reads(k), server=k, bounds=case.bounds, first_epoch=case.first_epoch)
            for k in range(case.num_servers)
        ]
        self.history: list[tuple[str, Task]] = []  # starts and finishes, in order
        self.log: list[tuple[int, Event, list[Action]]] = []  # the events and actions of each scheduler
        self.reads: list[Read] = []
        self.weights = Weights(case, stash_class())
        self.error: Exception | None = None
        self._tokens: list[Token] = []
        self._links: dict[tuple[int, int], deque[Event]] = defaultdict(deque)
        self._script = case.script()
        self._last_startable = case.first_epoch - 1
        self._over = [case.first_epoch - 1] * case.num_servers  # the newest epoch each server has finished
        self._values: list[dict[Cell, int]] = [{} for _ in self.schedulers]  # what each server has of every cell
        every = [(s, i) for s in range(len(case.table.steps)) for i in range(case.num_intervals)]
        self._read_cells = {cell: case.read_cells(*cell) for cell in every}

    def run(self, choose: Choose | None = None) -> "SimulatedCluster":
        """Let things happen until nothing can."""
        choose = choose or at_random(self.case)
        tokens = self._tokens
        self._drive()
        try:
            while tokens:
                index = choose(tokens)
                tokens[index], tokens[-1] = tokens[-1], tokens[index]
                self._happen(tokens.pop())
        except (TrainingError, KeyError) as error:
            self.error = error
        return self

    @property
    def started(self) -> list[Task]:
        return [task for what, task in self.history if what == "start"]

    @property
    def finished(self) -> list[Task]:
        return [task for what, task in self.history if what == "finish"]

    def _happen(self, token: Token) -> None:
        if token.messages is not None:
            self._deliver(token.server, token.messages.popleft())
        elif token.begun:
            self._finish(token)
        else:
            self._look(token)
            self.weights.use(token.task)
            self._tokens.append(token._replace(begun=True))

    def _look(self, token: Token) -> None:
        """Record what the task reads if it reads now."""
        values, task = self._values[token.server], token.task
        for cell in self._read_cells[task.step, task.interval]:
            self.reads.append(Read(task, cell, values.get(cell)))

    def _finish(self, token: Token) -> None:
        task = token.task
        self._look(token)
        self.weights.finish(task)
        self.history.append(("finish", task))
        if task.kind in SENT:
            self._values[token.server][task.step, task.interval] = task.epoch
        self._handle(token.server, Finished(task))
        if task.kind in SENT:
            reads = self.case.all_reads
            other = (reads.readers if task.kind is Kind.SCATTER else reads.sources)[task.interval]
            self._send(token.server, {self.case.owner[i] for i in other}, Arrived(task))

    def _deliver(self, server: int, event: Event) -> None:
        if isinstance(event, Arrived):
            cell, values = (event.task.step, event.task.interval), self._values[server]
            values[cell] = max(event.task.epoch, values.get(cell, event.task.epoch))  # ghosts keep the newer rows
        self._handle(server, event)

    def _handle(self, server: int, event: Event) -> None:
        actions = self.schedulers[server].handle(event)
        self.log.append((server, event, actions))
        for action in actions:
            if isinstance(action, Start):
                self.history.append(("start", action.task))
                self._tokens.append(Token(server, action.task.interval in self.case.slow, task=action.task))
            elif isinstance(action, StepFinished):
                self._send(server, range(self.case.num_servers), PeerFinished(server, action.epoch, action.step))
            elif isinstance(action, EpochFinished):
                self._over[server] = action.epoch
                self._send(server, range(self.case.num_servers), PeerFinished(server, action.epoch))
                self._drive()

    def _send(self, server: int, peers: Iterable[int], event: Event) -> None:
        for peer in sorted(peers):
            if peer != server:
                messages = self._links[server, peer] if self.case.fifo else deque()
                messages.append(event)
                self._tokens.append(Token(peer, server in self.case.slow_servers, messages))

    def _drive(self) -> None:
        """Send the next part of the driver's script, if all that was permitted before is finished."""
        if not self._script or min(self._over) < self._last_startable:
            return
        part = self._script.pop(0)
        self._last_startable = part[-1].epoch
        for server in range(self.case.num_servers):
            messages = deque[Event](part)
            self._tokens += [Token(server, False, messages)] * len(part)


class Weights:
    """The parameter server's part: versions, which only count up, and a stash of those that are in use."""

    def __init__(self, case: Case, stash: Any) -> None:
        self.stash = stash
        self.uses: list[Use] = []
        self.sizes: list[tuple[int, int, int]] = []  # (pins, versions held, intervals in flight)
        self._case = case
        self._version = 0
        self._in_flight: set[tuple[int, int]] = set()
        self._updates: Counter[int] = Counter()

    def use(self, task: Task) -> None:
        """A task begins: a dense one pulls weights, the interval's first one pins the newest."""
        if task.kind not in DENSE:
            return
        key = (task.interval, task.epoch)
        if key not in self._in_flight:
            self._in_flight.add(key)
            self.stash.pin(*key, self._version, f"weights {self._version}")
        self.uses.append(Use(task, self._version, self.stash.get(*key)))
        self._measure()

    def finish(self, task: Task) -> None:
        """A task finishes: a weight update makes a version, at once or when it is the epoch's last, and unpins."""
        key = (task.interval, task.epoch)
        if task.kind is not Kind.WEIGHT_UPDATE:
            return
        self._updates[task.epoch] += 1
        last = self._updates[task.epoch] == self._case.num_intervals
        self._version += last if self._case.sync_update else 1
        if key in self._in_flight:  # else the table has no dense step
            self.stash.release(*key)
            self._in_flight.remove(key)
        self._measure()

    def _measure(self) -> None:
        self.sizes.append((len(self.stash), len(self.stash.versions()), len(self._in_flight)))
