"""The staleness bound: which epochs an interval may start, given how far the slowest interval of the cluster is.

The *frontier* is the newest epoch that every interval on every server has finished, as far as one server knows. The
*bound* is the frontier that an epoch requires. Permits are a separate limit, which the driver sets.
"""

from collections.abc import Collection

from dorylus.errors import TrainingError
from dorylus.pipeline.events import Arrived, Report


class StalenessBound:
    """An interval may start epoch e when every interval has finished epoch e - 1 - staleness.

    Where e or e - 1 is exact, staleness counts as 0: there is a barrier on both sides of an exact epoch. The first
    epoch is always exact, because no older values are there to read.
    """

    def __init__(self, staleness: int, first_epoch: int) -> None:
        self.staleness, self.first_epoch = staleness, first_epoch
        self._exact_from: int | None = None  # set by a Synchronise event

    def required_frontier(self, epoch: int) -> int:
        """The epoch that every interval of the cluster must have finished before an interval may start this one."""
        is_relaxed = not (self.is_exact(epoch) or self.is_exact(epoch - 1))
        return epoch - 1 - (self.staleness if is_relaxed else 0)

    def is_exact(self, epoch: int) -> bool:
        """Whether tasks of this epoch wait for the values of this epoch that they read."""
        return epoch <= self.first_epoch or (self._exact_from is not None and epoch >= self._exact_from)

    @property
    def is_exact_from_now_on(self) -> bool:
        """Whether a Synchronise event has made all later epochs exact."""
        return self._exact_from is not None

    def make_exact(self, first: int) -> None:
        """Make all epochs from ``first`` on exact. The bound of no epoch becomes wider by it."""
        self._exact_from = first if self._exact_from is None else min(self._exact_from, first)


class Frontier:
    """``epoch`` is the newest epoch that is finished on every server; all epochs before it are finished too.

    An epoch is finished when every server has reported so *and* all rows of it that are read here have arrived. The
    reports alone are not enough: a report that overtakes rows would let an interval read values older than the bound.
    Reports may come in any order, each exactly once.
    """

    def __init__(self, first_epoch: int, num_servers: int, num_arrivals: int) -> None:
        self.epoch = first_epoch - 1
        self._num_expected = num_servers + num_arrivals
        self._missing: dict[int, int] = {}
        self._reports: dict[int, dict[Report, None]] = {}

    def add(self, epoch: int, report: Report) -> bool:
        """Record what a server (this one included) reports of an epoch; returns whether the frontier moves."""
        if epoch <= self.epoch or report in self._reports.get(epoch, ()):
            raise TrainingError(
                f"{report} was received twice: a server reports each task, step and epoch exactly once."
            )
        self._reports.setdefault(epoch, {})[report] = None
        if isinstance(report, Arrived) or report.step is None:
            self._missing[epoch] = self._missing.get(epoch, self._num_expected) - 1
        return self._move()

    def reports(self, epoch: int) -> Collection[Report]:
        """The reports on an epoch that is beyond the frontier, in the order they came."""
        return self._reports.get(epoch, {}).keys()

    def _move(self) -> bool:
        before = self.epoch
        while self._missing.get(self.epoch + 1) == 0:
            self.epoch += 1
            del self._missing[self.epoch], self._reports[self.epoch]
        return self.epoch > before
