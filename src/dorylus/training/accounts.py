"""The accounts of a run: what it has used until now, what that costs, and how many more epochs its budget allows."""

import os
import platform
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from dorylus.cost import Bill, Budget, Meter, Phase, PriceBook, Rates, Role, Usage, make_bill
from dorylus.pools.remote.invocations import Invoked
from dorylus.training.config import RunConfig
from dorylus.training.pooling import service_of


class Accounts:
    """Meters the machine a run is on, as if it were an instance of the type named, or of the nearest there is.

    It begins with the set-up; :meth:`enter` says what comes next.
    """

    def __init__(self, config: RunConfig, clock: Callable[[], float] = time.perf_counter) -> None:
        book = PriceBook.load(config.price_book)
        self.rates = Rates.of(book, config.instance or _this_machine(book), function=service_of(config))
        self.meter = self._meter()
        self._memory_mb = config.function_memory_mb
        self._budget = None if config.budget_usd is None else Budget.of(config.budget_usd)
        self._epochs_usd: list[Decimal] = []
        self._spent = Decimal(0)
        self._clock, self._since_s = clock, clock()

    def go_on_from(self, used: Mapping[str, Any], epochs: int) -> None:
        """Add to what a run had used for so many epochs before it was stopped."""
        phase, self.meter = self.meter.phase, self._meter(Usage.from_dict(used))
        self.meter.phase = phase
        self._spent = self._total()
        self._epochs_usd = [self._spent / epochs] if epochs else []

    def enter(self, phase: Phase) -> None:
        """Take the time since the last phase was entered, spent on that; from now on it is spent on this."""
        now = self._clock()
        self.meter.add_servers(Role.GRAPH, now - self._since_s)
        self.meter.phase, self._since_s = phase, now

    def invoked(self, invocation: Invoked) -> None:
        """Take an invocation of a function, also one that failed: it is billed all the same."""
        function = self.rates.function
        if function is not None:
            vcpus = self._memory_mb / function.mb_per_vcpu if function.mb_per_vcpu else 1.0
            warm_ms = invocation.billed_ms - invocation.init_ms
            self.meter.add_call(warm_ms, self._memory_mb, vcpus=vcpus, cold_ms=invocation.init_ms)

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

    def _meter(self, start: Usage | None = None) -> Meter:
        function = self.rates.function
        return Meter(None if function is None else function.rounding, start=start)

    def _total(self) -> Decimal:
        return self.bill().total()


def _this_machine(book: PriceBook) -> str:
    cores = len(os.sched_getaffinity(0))
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return book.nearest_instance(cores, memory_bytes, platform.machine()).name
