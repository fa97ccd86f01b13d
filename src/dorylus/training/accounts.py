"""The accounts of a run: what it has used until now, what that costs, and how many more epochs its budget allows."""

import os
import platform
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from dorylus.cost import Bill, Budget, Meter, Phase, PriceBook, Rates, Role, make_bill
from dorylus.training.config import RunConfig


class Accounts:
    """Meters the machine a run is on, as if it were an instance of the type named, or of the nearest there is.

    Time passes from :meth:`lap` to :meth:`lap`, each of which says what it was spent on.
    """

    def __init__(self, config: RunConfig, clock: Callable[[], float] = time.perf_counter) -> None:
        book = PriceBook.load(config.price_book)
        self.rates = Rates.of(book, config.instance or _this_machine(book))
        self.meter = Meter()
        self._budget = None if config.budget_usd is None else Budget.of(config.budget_usd)
        self._epochs_usd: list[Decimal] = []
        self._spent = Decimal(0)
        self._clock, self._since_s = clock, clock()

    def go_on_from(self, used: Mapping[str, Any], epochs: int) -> None:
        """Add to what a run had used for so many epochs before it was stopped."""
        self.meter = Meter.from_dict(used)
        self._spent = self._total()
        self._epochs_usd = [self._spent / epochs] if epochs else []

    def lap(self, phase: Phase) -> None:
        """Take the time since the last lap, spent on this."""
        now = self._clock()
        self.meter.add_servers(Role.GRAPH, now - self._since_s, phase=phase)
        self._since_s = now

    def end_epoch(self) -> float:
        """Note what the epoch cost, and all that came since the one before; gives the dollars spent in all."""
        before, self._spent = self._spent, self._total()
        self._epochs_usd.append(self._spent - before)
        return float(self._spent)

    def bill(self) -> Bill:
        """The bill until now."""
        return make_bill(self.meter.snapshot(), self.rates)

    def affordable(self) -> int | None:
        """How many more epochs fit the budget; None without one."""
        if self._budget is None:
            return None
        spent = self._total()
        decision = self._budget.decide(spent, self._epochs_usd)
        if not decision.go_on:
            return 0
        left = self._budget.limit_usd - spent
        return int(left / decision.expected_usd) if decision.expected_usd else 1

    def _total(self) -> Decimal:
        return self.bill().total()


def _this_machine(book: PriceBook) -> str:
    cores = len(os.sched_getaffinity(0))
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return book.nearest_instance(cores, memory_bytes, platform.machine()).name
