"""When the weights are updated, and from which gradients: synchronous and asynchronous updates.

The two rules differ in nothing else. Both accept each task's gradients exactly once (:class:`GradientLedger`) and
return, when an interval finishes, the optimiser steps that are due.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from dorylus.errors import ConfigError, TrainingError, unknown_name


@dataclass
class _EpochEntry:
    pushed: set[tuple[int, int]] = field(default_factory=set)  # (interval, step)
    finished: set[int] = field(default_factory=set)


class GradientLedger:
    """Which gradients were pushed and which intervals have finished, for every epoch in progress.

    Several epochs may be open at once; they close in order, each when all its intervals have finished.
    """

    def __init__(self, num_intervals: int) -> None:
        self.num_intervals = num_intervals
        self._open: dict[int, _EpochEntry] = {}
        self._closed = -1

    def open_epochs(self) -> list[int]:
        """The epochs in progress, in order."""
        return sorted(self._open)

    def enter(self, interval: int, epoch: int) -> None:
        """An interval starts an epoch; refused if it has finished it."""
        self._entry(interval, epoch)

    def push(self, interval: int, epoch: int, step: int) -> None:
        """An interval pushes the gradients of a step; refused the second time."""
        pushed = self._entry(interval, epoch).pushed
        if (interval, step) in pushed:
            raise TrainingError(
                f"interval {interval} pushes the gradients of step {step} of epoch {epoch} a second time: a task's "
                "gradients count once, however often it was launched. Drop the second answer."
            )
        pushed.add((interval, step))

    def finish(self, interval: int, epoch: int) -> list[int]:
        """An interval has pushed all its gradients of an epoch; returns the epochs that this closes, in order."""
        self._entry(interval, epoch).finished.add(interval)
        closed = []
        while self._open and len(self._open[first := min(self._open)].finished) == self.num_intervals:
            del self._open[first]
            self._closed = first
            closed.append(first)
        return closed

    def _entry(self, interval: int, epoch: int) -> _EpochEntry:
        if not 0 <= interval < self.num_intervals:
            raise TrainingError(
                f"interval {interval} called parameter servers of {self.num_intervals} intervals: intervals are "
                "numbered from 0 over the whole cluster. Make the parameter servers with the right number."
            )
        entry = self._open.get(epoch)
        if epoch <= self._closed or (entry is not None and interval in entry.finished):
            raise TrainingError(
                f"interval {interval} called for epoch {epoch}, which it has finished: its weight update is its last "
                "task of an epoch, and is called once."
            )
        if entry is None:
            entry = self._open[epoch] = _EpochEntry()
        return entry


Gradients = Mapping[str, Tensor]


@dataclass(frozen=True)
class Update:
    """One optimiser step that is due: its gradients, and the number of such steps in an epoch."""

    grads: Gradients
    parts: int = 1


class Updates(Protocol):
    """Accepts gradients and returns the updates that are due."""

    ledger: GradientLedger

    def push(self, interval: int, epoch: int, step: int, grads: Gradients) -> None:
        """Accept one task's weight gradients."""

    def finish(self, interval: int, epoch: int) -> list[Update]:
        """The updates that are due after an interval has pushed all its gradients of an epoch."""

    def missing(self, epoch: int) -> int:
        """The number of updates still missing before the weights are those of an exact run at the start of an epoch."""


@dataclass
class _OrderedSum:
    """A sum over intervals that is the same to the last bit for every order of arrival.

    Gradients are added in the order of intervals as they arrive; only those ahead of their turn are held. That every
    interval pushes, if only an empty table, keeps few waiting; the sum is right without it.
    """

    total: dict[str, Tensor] = field(default_factory=dict)
    waiting: dict[int, Gradients] = field(default_factory=dict)
    next_interval: int = 0

    def add(self, interval: int, grads: Gradients) -> None:
        self.waiting[interval] = grads
        while self.next_interval in self.waiting:
            self._add(self.next_interval)
            self.next_interval += 1

    def finish(self) -> dict[str, Tensor]:
        for interval in sorted(self.waiting):
            self._add(interval)
        return self.total

    def _add(self, interval: int) -> None:
        for name, grad in self.waiting.pop(interval).items():
            if name in self.total:
                self.total[name] += grad
            else:
                self.total[name] = (
                    grad.clone()
                )  # later ones are added in place, and the pushed tensor belongs to the caller


class SyncUpdates:
    """One update an epoch, from the sum of all intervals' gradients in the order (step, interval)."""

    def __init__(self, ledger: GradientLedger, names: Mapping[str, str]) -> None:
        self.ledger, self._names = ledger, names
        self._sums: dict[int, dict[int, _OrderedSum]] = defaultdict(lambda: defaultdict(_OrderedSum))

    def push(self, interval: int, epoch: int, step: int, grads: Gradients) -> None:
        """Accept one task's weight gradients, of the epoch in progress or a later one."""
        _check_known(grads, self._names)
        self.ledger.push(interval, epoch, step)
        self._sums[epoch][step].add(interval, grads)

    def finish(self, interval: int, epoch: int) -> list[Update]:
        """The epoch's update, if this interval was its last."""
        closed = self.ledger.finish(interval, epoch)
        return [Update(_over_steps(self._totals(each), self._names)) for each in closed]

    def missing(self, epoch: int) -> int:
        """One for each earlier epoch that is in progress."""
        return sum(each < epoch for each in self.ledger.open_epochs())

    def _totals(self, epoch: int) -> dict[int, Gradients]:
        return {step: each.finish() for step, each in self._sums.pop(epoch, {}).items()}


class AsyncUpdates:
    """One update an interval, as soon as its gradient arrives, after a first one from all of them together.

    The loss is a mean over all training vertices, so the epoch's gradient is a sum g = g_1 + ... + g_n over intervals.
    An interval's new gradient replaces its last one in that sum, and the optimiser steps from the sum at once, at the
    learning rate lr/n (stochastic average gradient: Le Roux, Schmidt and Bach 2012). So the n steps of an epoch move
    about as far as one synchronous step, for SGD and for optimisers that normalise the gradient's size; every gradient
    counts with lr in total; weight decay is weighed against the whole gradient; and no gradient in the sum is older
    than the bound permits. Stepping from n·g_i alone, without the others, is noisier: Adam then measures the noise and
    takes far smaller steps.

    The first n gradients make one synchronous update, as the first epoch is exact. Stores n times the weights.
    """

    def __init__(self, ledger: GradientLedger, names: Mapping[str, str]) -> None:
        self.ledger, self._names = ledger, names
        self._pushed: dict[tuple[int, int], dict[int, Gradients]] = defaultdict(dict)
        self._newest: dict[int, Gradients] = {}
        self._sum: dict[str, Tensor] = {}
        self._arrivals = 0

    def push(self, interval: int, epoch: int, step: int, grads: Gradients) -> None:
        """Accept one task's weight gradients."""
        _check_known(grads, self._names)
        self.ledger.push(interval, epoch, step)
        self._pushed[interval, epoch][step] = grads

    def finish(self, interval: int, epoch: int) -> list[Update]:
        """The interval's update; none before the gradients of all intervals have arrived once, in the first epoch."""
        self.ledger.finish(interval, epoch)
        new = _over_steps(self._pushed.pop((interval, epoch), {}), self._names)
        old, self._newest[interval] = self._newest.get(interval, {}), new
        parts = self.ledger.num_intervals
        self._arrivals += 1
        if self._arrivals < parts:
            return []
        if self._arrivals % parts == 0:  # summed afresh once an epoch, or rounding errors would accumulate
            self._sum = _total(self._newest[each] for each in sorted(self._newest))
        else:
            self._sum = _total([self._sum, new, {name: -grad for name, grad in old.items()}])
        grads = {name: grad.clone() for name, grad in self._sum.items()}  # an optimiser may clip them in place
        return [Update(grads, 1 if self._arrivals == parts else parts)]

    def missing(self, epoch: int) -> int:
        """0: every gradient that has arrived is in the weights."""
        return 0


def _total(tables: Iterable[Gradients]) -> dict[str, Tensor]:
    total: dict[str, Tensor] = {}
    for table in tables:
        for name, grad in table.items():
            total[name] = total[name] + grad if name in total else grad
    return total


UPDATES: dict[str, type[SyncUpdates] | type[AsyncUpdates]] = {"sync": SyncUpdates, "async": AsyncUpdates}


def make_updates(update: str, ledger: GradientLedger, names: Mapping[str, str]) -> Updates:
    """The update rule of this name; ``names`` maps each parameter's names to the one under which it is stepped."""
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
