"""The frontier: up to which epoch everything is over everywhere, as far as one server has heard."""

from collections.abc import Collection

from dorylus.errors import TrainingError
from dorylus.pipeline.messages import Arrived, Report


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
