"""When the weights are updated, and by which gradient.

The two ways differ in nothing else: both take each task's gradients exactly once and say, when an interval finishes,
which optimiser steps are due.

The ledger of a run's gradients: who has pushed and who has finished what, each exactly once.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from dorylus.errors import ConfigError, TrainingError, unknown_name


@dataclass
class _Entry:
    pushed: set[tuple[int, int]] = field(default_factory=set)  # (interval, step)
    finished: set[int] = field(default_factory=set)


class GradientLedger:
    """Epochs in progress. Several may be open at once; they close in order, each when all its intervals finished."""

    def __init__(self, num_intervals: int) -> None:
        self.num_intervals = num_intervals
        self._open: dict[int, _Entry] = {}
        self._closed = -1

    def open_epochs(self) -> list[int]:
        """The epochs that somebody is at work on, in order."""
        return sorted(self._open)

    def enter(self, interval: int, epoch: int) -> None:
        """An interval is at work on an epoch; refused when it has finished it."""
        self._entry(interval, epoch)

    def push(self, interval: int, epoch: int, step: int) -> None:
        """An interval has pushed the gradients of a step; refused the second time."""
        pushed = self._entry(interval, epoch).pushed
        if (interval, step) in pushed:
            raise TrainingError(
                f"interval {interval} pushes the gradients of step {step} of epoch {epoch} a second time: a task's "
                "gradients count once, however often it was launched. Drop the second answer."
            )
        pushed.add((interval, step))

    def finish(self, interval: int, epoch: int) -> list[int]:
        """An interval has pushed all; gives the epochs that close by it, in order."""
        self._entry(interval, epoch).finished.add(interval)
        closed = []
        while self._open and len(self._open[first := min(self._open)].finished) == self.num_intervals:
            del self._open[first]
            self._closed = first
            closed.append(first)
        return closed

    def _entry(self, interval: int, epoch: int) -> _Entry:
        if not 0 <= interval < self.num_intervals:
            raise TrainingError(
                f"interval {interval} speaks to parameter servers of {self.num_intervals} intervals: they are "
                f"numbered from 0 over the whole cluster. Make the parameter servers with their right number."
            )
        entry = self._open.get(epoch)
        if epoch <= self._closed or (entry is not None and interval in entry.finished):
            raise TrainingError(
                f"interval {interval} speaks of epoch {epoch}, which it has finished: its weight update is its last "
                "task of an epoch, and comes once."
            )
        if entry is None:
            entry = self._open[epoch] = _Entry()
        return entry


Gradients = Mapping[str, Tensor]


@dataclass(frozen=True)
class Update:
    """One optimiser step that is due: the gradients, and how many such steps make up an epoch."""

    grads: Gradients
    parts: int = 1


class Updates(Protocol):
    """Takes gradients and says which updates are due."""

    ledger: GradientLedger

    def push(self, interval: int, epoch: int, step: int, grads: Gradients) -> None:
        """Take one task's weight gradients."""

    def finish(self, interval: int, epoch: int) -> list[Update]:
        """The updates due now that an interval has pushed all of an epoch."""

    def missing(self, epoch: int) -> int:
        """How many updates are still to come before the weights are those of an exact run at the start of an epoch."""


@dataclass
class _Ordered:
    """A sum over intervals that comes out the same to the last bit whatever order they arrive in.

    It is formed as they come, and holds only those that came before their turn. That every interval pushes, if only
    an empty table, keeps it short; the sum is right without.
    """

    total: dict[str, Tensor] = field(default_factory=dict)
    waiting: dict[int, Gradients] = field(default_factory=dict)
    following: int = 0

    def add(self, interval: int, grads: Gradients) -> None:
        self.waiting[interval] = grads
        while self.following in self.waiting:
            self._take(self.following)
            self.following += 1

    def finish(self) -> dict[str, Tensor]:
        for interval in sorted(self.waiting):
            self._take(interval)
        return self.total

    def _take(self, interval: int) -> None:
        for name, grad in self.waiting.pop(interval).items():
            if name in self.total:
                self.total[name] += grad
            else:
                self.total[name] = grad.clone()  # the next is added in place, and what was pushed is not ours


class SyncUpdates:
    """One update an epoch, from the sum of all intervals' gradients in the order (step, interval)."""

    def __init__(self, ledger: GradientLedger, names: Mapping[str, str]) -> None:
        self.ledger, self._names = ledger, names
        self._sums: dict[int, dict[int, _Ordered]] = defaultdict(lambda: defaultdict(_Ordered))

    def push(self, interval: int, epoch: int, step: int, grads: Gradients) -> None:
        """Take one task's weight gradients, of this epoch or of one that follows before it is closed."""
        _check_known(grads, self._names)
        self.ledger.push(interval, epoch, step)
        self._sums[epoch][step].add(interval, grads)

    def finish(self, interval: int, epoch: int) -> list[Update]:
        """The epoch's update, if this interval was its last."""
        closed = self.ledger.finish(interval, epoch)
        return [Update(_over_steps(self._totals(each), self._names)) for each in closed]

    def missing(self, epoch: int) -> int:
        """One for each earlier epoch that somebody is still at work on."""
        return sum(each < epoch for each in self.ledger.open_epochs())

    def _totals(self, epoch: int) -> dict[int, Gradients]:
        return {step: each.finish() for step, each in self._sums.pop(epoch, {}).items()}


class AsyncUpdates:
    """One update an interval, as soon as its gradient arrives, after a first one from all of them together.

    The loss is a mean over all training vertices, so the epoch's gradient is a sum g = g_1 + ... + g_n over intervals.
    An interval's new gradient takes the place of its last one in that sum, and a step is taken from the sum at once, at
    the learning rate lr/n (stochastic average gradient: Le Roux, Schmidt and Bach 2012). So the n steps of an epoch
    move about as far as one synchronous step, for SGD and for optimisers that divide the gradient's size out; every
    gradient counts with lr in all; weight decay is weighed against the whole gradient, as it should be; and what is old
    in the sum is no older than the bound permits. Stepping from n·g_i alone, without the others, is noisier: Adam then
    measures the noise and takes far smaller steps.

    The first n gradients make one synchronous update, as the first epoch is synchronous. Costs n times the weights.
    """

    def __init__(self, ledger: GradientLedger, names: Mapping[str, str]) -> None:
        self.ledger, self._names = ledger, names
        self._pushed: dict[tuple[int, int], dict[int, Gradients]] = defaultdict(dict)
        self._newest: dict[int, Gradients] = {}
        self._sum: dict[str, Tensor] = {}
        self._arrivals = 0

    def push(self, interval: int, epoch: int, step: int, grads: Gradients) -> None:
        """Take one task's weight gradients."""
        _check_known(grads, self._names)
        self.ledger.push(interval, epoch, step)
        self._pushed[interval, epoch][step] = grads

    def finish(self, interval: int, epoch: int) -> list[Update]:
        """The interval's update; none before as many have arrived as there are intervals: the first epoch's."""
        self.ledger.finish(interval, epoch)
        new = _over_steps(self._pushed.pop((interval, epoch), {}), self._names)
        old, self._newest[interval] = self._newest.get(interval, {}), new
        parts = self.ledger.num_intervals
        self._arrivals += 1
        if self._arrivals < parts:
            return []
        if self._arrivals % parts == 0:  # summed anew now and then, or rounding errors would pile up
            self._sum = _total(self._newest[each] for each in sorted(self._newest))
        else:
            self._sum = _total([self._sum, new, {name: -grad for name, grad in old.items()}])
        grads = {name: grad.clone() for name, grad in self._sum.items()}  # an optimiser may clip them where they are
        return [Update(grads, 1 if self._arrivals == parts else parts)]

    def missing(self, epoch: int) -> int:
        """None: every gradient that has arrived is in the weights."""
        return 0


def _total(tables: Iterable[Gradients]) -> dict[str, Tensor]:
    total: dict[str, Tensor] = {}
    for table in tables:
        for name, grad in table.items():
            total[name] = total[name] + grad if name in total else grad
    return total


UPDATES: dict[str, type[SyncUpdates] | type[AsyncUpdates]] = {"sync": SyncUpdates, "async": AsyncUpdates}


def make_updates(update: str, ledger: GradientLedger, names: Mapping[str, str]) -> Updates:
    """The way of updating that goes by this name; ``names`` says under which name each parameter is stepped."""
    if update not in UPDATES:
        raise ConfigError(unknown_name("weight update", update, UPDATES))
    return UPDATES[update](ledger, names)


def _check_known(grads: Gradients, names: Mapping[str, str]) -> None:
    for name in grads:
        if name not in names:
            raise TrainingError(f"a gradient was pushed for an {unknown_name('parameter', name, names)}")


def _over_steps(by_step: Mapping[int, Gradients], names: Mapping[str, str]) -> dict[str, Tensor]:
    """The sum over steps, in their order, of each parameter's gradients under any of its names."""
    total: dict[str, Tensor] = {}
    for step in sorted(by_step):
        for name, grad in by_step[step].items():
            stepped = names[name]
            total[stepped] = total[stepped] + grad if stepped in total else grad
    return total
