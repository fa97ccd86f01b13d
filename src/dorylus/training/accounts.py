"""The accounts of a run: what it has used until now, what that costs, and how many more epochs its budget allows."""

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from threading import Lock
from typing import Any

from dorylus.config import RunConfig
from dorylus.cost import (
    Bill,
    Budget,
    BudgetDecision,
    FunctionUse,
    Meter,
    Phase,
    PriceBook,
    Rates,
    Role,
    Usage,
    amount_of,
    make_bill,
)
from dorylus.pools import Invoked, service_of


class Accounts:
    """Meters the machine a run is on, as if it were an instance of the type named, or of the nearest there is.

    It begins with the set-up, now or at ``since_s`` of the clock; :meth:`enter` says what comes next, :meth:`run_on` on
    how many machines it is.
    """

    def __init__(
        self, config: RunConfig, clock: Callable[[], float] = time.perf_counter, since_s: float | None = None
    ) -> None:
        self._clock, self._since_s = clock, clock() if since_s is None else since_s
        self._book = book = PriceBook.load(config.price_book)
        self.rates = Rates.of(book, config.instance or _this_machine(book), function=service_of(config))
        self.meter = self._meter()
        self._memory_mb = config.function_memory_mb
        self._budget = None if config.budget_usd is None else Budget.of(config.budget_usd)
        self._epochs_usd: list[Decimal] = []
        self._spent = self._trained = Decimal(0)  # in all; without the set-up
        self._closing_usd = Decimal(0)  # what an evaluation costs, at most until now
        self._exported_s = 0.0  # in the phase that goes on
        self._lock = Lock()  # the ledger reads from a thread of its own
        self.begun: Callable[[], int] = lambda: 0  # invocations, in this process
        self._ended = 0  # of them
        self._machines = 1

    def to_dict(self) -> dict[str, Any]:
        """What the run has used until the last phase was entered, and the service whose functions it called."""
        return self._named(self.meter.snapshot())

    def up_to_now(self, ahead_s: float = 0.0) -> dict[str, Any]:
        """The same up to this moment, or so long after it, in the phase that goes on; any thread may ask.

        Invocations that are under way count as one that has ended did, on an average: a service bills them, whatever
        becomes of this process.
        """
        with self._lock:
            under_way = self.begun() - self._ended
            usage, phase = self.meter.snapshot(), self.meter.phase
            spent_ns = round((self._clock() - self._since_s + ahead_s) * 10**9) * self._machines
        server_ns = dict(usage.server_ns)
        server_ns[Role.GRAPH, phase] = server_ns.get((Role.GRAPH, phase), 0) + spent_ns
        functions = dict(usage.functions)
        if under_way > 0:
            functions[phase] = functions.get(phase, FunctionUse()) + usage.of_functions().average(under_way)
        return self._named(replace(usage, server_ns=server_ns, functions=functions))

    def _named(self, usage: Usage) -> dict[str, Any]:
        function = self.rates.function
        return {**usage.to_dict(), "service": None if function is None else function.name}

    def go_on_from(self, used: Mapping[str, Any], epochs: int = 0) -> None:
        """Add to what a run had used for so many epochs before it was stopped."""
        service = used.get("service")
        if self.rates.function is None and service is not None:  # it calls functions no more, but it has
            self.rates = replace(self.rates, function=self._book.function(service))
        phase, self.meter = self.meter.phase, self._meter(Usage.from_dict(used))
        self.meter.phase = phase
        self.expect_epochs(epochs)

    def expect_epochs(self, like: int) -> None:
        """Expect the next epoch to cost what the last ones did, so many of them, on an average."""
        self._read()
        self._epochs_usd = [self._trained / like] if like else []

    def enter(self, phase: Phase) -> None:
        """Take the time since the last phase was entered, spent on that; from now on it is spent on this."""
        with self._lock:
            now = self._clock()
            spent_s = now - self._since_s
            exported_s = min(self._exported_s, spent_s)
            self.meter.add_servers(Role.GRAPH, spent_s - exported_s, count=self._machines)
            self.meter.add_servers(Role.GRAPH, exported_s, count=self._machines, phase=Phase.SETUP)
            self.meter.phase, self._since_s, self._exported_s = phase, now, 0.0

    def run_on(self, machines: int) -> None:
        """The run is on so many machines, of one type, and has been since the last phase was entered."""
        self._machines = machines

    def exported(self, seconds: float) -> None:
        """Take that tasks waited for a program to be exported: that is done once, so it belongs to the set-up."""
        self._exported_s += seconds

    def invoked(self, invocation: Invoked) -> None:
        """Take an invocation of a function, also one that failed: it is billed all the same."""
        function = self.rates.function
        if function is not None:
            vcpus = self._memory_mb / function.mb_per_vcpu if function.mb_per_vcpu else 1.0
            warm_ms = invocation.billed_ms - invocation.init_ms
            with self._lock:
                self._ended += 1
                self.meter.add_call(warm_ms, self._memory_mb, vcpus=vcpus, cold_ms=invocation.init_ms)

    def end_epoch(self) -> float:
        """Note what the epoch cost, and all that came since the one before; gives the dollars spent in all."""
        before = self._trained
        self._read()
        self._epochs_usd.append(self._trained - before)
        return float(self._spent)

    def bill(self) -> Bill:
        """The bill until now."""
        return make_bill(self.meter.snapshot(), self.rates)

    @property
    def has_budget(self) -> bool:
        """Whether the run may cost only so much."""
        return self._budget is not None

    def allow_epoch(self) -> bool:
        """Whether another epoch fits the budget, where there is one."""
        if self._budget is None:
            return True
        self.enter(self.meter.phase)  # up to this moment
        return self._decide().go_on

    def why_not(self) -> str:
        """Why no further epoch fits the budget, and the cure."""
        assert self._budget is not None
        reason = self._decide().reason
        return f"budget_usd={self._budget.limit_usd:f}: {reason}. Give a larger budget_usd."

    @property
    def must_learn_closing(self) -> bool:
        """Whether there is a budget, and nothing is known of what closing the run will cost."""
        return self.has_budget and not self._closing_usd

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Takes what an evaluation costs: closing the run will take another."""
        self.enter(Phase.EVALUATION)
        before = self.bill().total()
        yield
        self.enter(Phase.EVALUATION)
        self._closing_usd = max(self._closing_usd, self.bill().total() - before)

    def _decide(self) -> BudgetDecision:
        assert self._budget is not None
        return self._budget.decide(self.bill().total(), self._epochs_usd, self._closing_usd)

    def _meter(self, start: Usage | None = None) -> Meter:
        function = self.rates.function
        return Meter(None if function is None else function.rounding, start=start)

    def _read(self) -> None:
        """Read off what was spent until now, in all and without the set-up."""
        setup = amount_of(
            self.meter.snapshot().server_hours(Role.GRAPH, Phase.SETUP), self.rates.usd_per_hour(Role.GRAPH)
        )
        self._spent = self.bill().total()
        self._trained = self._spent - setup


def _this_machine(book: PriceBook) -> str:
    cores = len(os.sched_getaffinity(0))
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return book.nearest_instance(cores, memory_bytes, platform.machine()).name
