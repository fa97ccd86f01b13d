"""The accounts of a run: its usage so far, the cost of that, and whether its budget allows another epoch."""

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
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
from dorylus.errors import ConfigError, DorylusError, given
from dorylus.pools import Invoked, service_of
from dorylus.runs import UsageLedger, newest


class Accounts:
    """Meters the machine of a run as if it were an instance of the named type, or of the nearest one.

    The set-up begins now, or at ``since_s`` of the clock; :meth:`enter` begins the next phase, :meth:`set_machines`
    sets the number of machines. With :meth:`keep_ledger` the usage is also written to a file, so that a killed run is
    billed.
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
        self._closing_usd = Decimal(0)  # the highest cost of an evaluation so far
        self._exported_s = 0.0  # in the current phase
        self._lock = Lock()  # the ledger reads from its own thread
        self.begun: Callable[[], int] = lambda: 0  # invocations, in this process
        self._ended = 0  # of them
        self._machines = 1
        self._ledger: UsageLedger | None = None
        self._used_before: dict[str, Any] | None = None  # before this process began

    def keep_ledger(self, path: Path, used_before: dict[str, Any] | None) -> None:
        """Write the usage to a ledger from now on, on top of what the run had used before this process."""
        self._used_before = used_before
        if used_before:
            self.go_on_from(used_before)
        self._ledger = UsageLedger(path, self.up_to_now)
        self._ledger.write()

    def write_ledger(self) -> None:
        """Write the usage so far to the ledger, if the run has one."""
        if self._ledger is not None:
            self._ledger.write()

    def invocation_begins(self) -> None:
        """Write the ledger before an invocation: a service bills it even if this process is killed."""
        with suppress(OSError, DorylusError):  # the next checkpoint reports it
            self.write_ledger()

    def discard_usage(self) -> None:
        """Take the usage of this process off the bill: the run was refused."""
        if self._ledger is not None:
            with suppress(OSError, DorylusError):  # the error that refused the run is reported, not this one
                self._ledger.restore_previous(self._used_before)

    def continue_run(self, used: dict[str, Any], epochs: int) -> None:
        """Continue the accounts of a run that was stopped after ``epochs`` epochs; its checkpoint says ``used``."""
        if newest(entry for entry in (self._used_before, used) if entry) is not self._used_before:
            self._used_before = dict(used)  # of a run that had no ledger
            self.go_on_from(self._used_before)
        self.expect_epochs(epochs)

    def refuse(self) -> ConfigError:
        """The error of a run that its budget leaves no epoch for, whose usage is not charged."""
        self.discard_usage()
        return ConfigError(self.why_not())

    def close(self) -> None:
        """Close the ledger."""
        if self._ledger is not None:
            self._ledger.close()

    def to_dict(self) -> dict[str, Any]:
        """The usage before the current phase, and the service of the run's functions."""
        return self._named(self.meter.snapshot())

    def up_to_now(self, ahead_s: float = 0.0) -> dict[str, Any]:
        """The usage up to now, or ``ahead_s`` later, in the current phase; any thread may call this.

        Invocations in progress count as the average of those that have ended: a service bills them even if this
        process is killed.
        """
        with self._lock:
            in_progress = self.begun() - self._ended
            usage, phase = self.meter.snapshot(), self.meter.phase
            spent_ns = round((self._clock() - self._since_s + ahead_s) * 10**9) * self._machines
        server_ns = dict(usage.server_ns)
        server_ns[Role.GRAPH, phase] = server_ns.get((Role.GRAPH, phase), 0) + spent_ns
        functions = dict(usage.functions)
        if in_progress > 0:
            functions[phase] = functions.get(phase, FunctionUse()) + usage.of_functions().average(in_progress)
        return self._named(replace(usage, server_ns=server_ns, functions=functions))

    def _named(self, usage: Usage) -> dict[str, Any]:
        function = self.rates.function
        return {**usage.to_dict(), "service": None if function is None else function.name}

    def go_on_from(self, used: Mapping[str, Any], epochs: int = 0) -> None:
        """Start from the usage of a run that was stopped after ``epochs`` epochs."""
        service = used.get("service")
        if self.rates.function is None and service is not None:  # it called functions before, and does not now
            self.rates = replace(self.rates, function=self._book.function(service))
        phase, self.meter = self.meter.phase, self._meter(Usage.from_dict(used))
        self.meter.phase = phase
        self.expect_epochs(epochs)

    def expect_epochs(self, like: int) -> None:
        """Expect the next epoch to cost the average of the ``like`` epochs before."""
        self._read()
        self._epochs_usd = [self._trained / like] if like else []

    def enter(self, phase: Phase) -> None:
        """Add the time of the phase that ends to the usage, and begin another."""
        with self._lock:
            now = self._clock()
            spent_s = now - self._since_s
            exported_s = min(self._exported_s, spent_s)
            self.meter.add_servers(Role.GRAPH, spent_s - exported_s, count=self._machines)
            self.meter.add_servers(Role.GRAPH, exported_s, count=self._machines, phase=Phase.SETUP)
            self.meter.phase, self._since_s, self._exported_s = phase, now, 0.0

    def set_machines(self, machines: int) -> None:
        """Set the number of machines, of one type, since the last phase began."""
        self._machines = machines

    def exported(self, seconds: float) -> None:
        """Book the time that tasks waited for a program to be exported: once per run, so it belongs to the set-up."""
        self._exported_s += seconds

    def invoked(self, invocation: Invoked) -> None:
        """Book an invocation of a function; one that failed is billed too."""
        function = self.rates.function
        if function is not None:
            vcpus = self._memory_mb / function.mb_per_vcpu if function.mb_per_vcpu else 1.0
            warm_ms = invocation.billed_ms - invocation.init_ms
            with self._lock:
                self._ended += 1
                self.meter.add_call(warm_ms, self._memory_mb, vcpus=vcpus, cold_ms=invocation.init_ms)

    def end_epoch(self) -> float:
        """Book the cost since the epoch before; returns the dollars spent so far."""
        before = self._trained
        self._read()
        self._epochs_usd.append(self._trained - before)
        return float(self._spent)

    def bill(self) -> Bill:
        """The bill so far."""
        return make_bill(self.meter.snapshot(), self.rates)

    @property
    def has_budget(self) -> bool:
        """Whether the run has a budget."""
        return self._budget is not None

    def allow_epoch(self) -> bool:
        """Whether another epoch fits the budget, where there is one."""
        if self._budget is None:
            return True
        self.enter(self.meter.phase)  # books the time up to now
        return self._decide().go_on

    def why_not(self) -> str:
        """Why no further epoch fits the budget, and the cure."""
        assert self._budget is not None
        reason = self._decide().reason
        return f"{given('budget_usd', float(self._budget.limit_usd))}: {reason}. Use a larger {given('budget_usd')}."

    @property
    def needs_closing_cost(self) -> bool:
        """Whether the run has a budget, and the cost of closing it was not measured yet."""
        return self.has_budget and not self._closing_usd

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Measures what an evaluation costs: closing the run takes another one."""
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
        """Compute the cost so far, in all and without the set-up."""
        setup = amount_of(
            self.meter.snapshot().server_hours(Role.GRAPH, Phase.SETUP), self.rates.usd_per_hour(Role.GRAPH)
        )
        self._spent = self.bill().total()
        self._trained = self._spent - setup


def _this_machine(book: PriceBook) -> str:
    cores = len(os.sched_getaffinity(0))
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return book.nearest_instance(cores, memory_bytes, platform.machine()).name
