"""Makes the bill of what a run used."""

from collections.abc import Iterator
from decimal import Decimal

from dorylus.cost.bill import Bill, Line
from dorylus.cost.exact import EXACT, ratio
from dorylus.cost.meter import Meter
from dorylus.cost.rates import Rates
from dorylus.cost.rows import FunctionService, Instance
from dorylus.cost.tiers import graduated, with_free
from dorylus.cost.usage import Phase, Role, Usage
from dorylus.errors import ConfigError, unknown_name

MILLION = 1_000_000
WORDS = {Phase.TRAINING: "training", Phase.SETUP: "set-up", Phase.EVALUATION: "evaluation"}  # in the order of lines


def make_bill(usage: Usage, rates: Rates) -> Bill:
    """The bill of what was used, at these rates; see :class:`Bill` for its two bases."""
    return Bill((*_servers(usage, rates), *_functions(usage, rates), *_transfers(usage, rates)))


def cluster_bill(
    graph: Instance, servers: int, seconds: float, *, parameter: Instance | None = None, parameter_servers: int = 0
) -> Bill:
    """What a cluster costs for a time of training: graph servers, and parameter servers on the full basis."""
    meter = Meter()
    meter.add_servers(Role.GRAPH, seconds, count=servers, phase=Phase.TRAINING)
    meter.add_servers(Role.PARAMETER, seconds, count=parameter_servers, phase=Phase.TRAINING)
    return make_bill(meter.snapshot(), Rates(graph=graph, parameter=parameter))


def _servers(usage: Usage, rates: Rates) -> Iterator[Line]:
    for role in Role:
        instance, price = rates.server(role), rates.usd_per_hour(role)
        name = f"{role.value} servers, {instance.name}{' (spot)' if rates.spot else ''}"
        for phase, word in WORDS.items():
            hours = usage.server_hours(role, phase)
            if hours:
                on_paper = role is Role.GRAPH and phase is Phase.TRAINING
                yield Line.priced(f"{name}, {word}", hours, "h", price, instance, on_paper=on_paper)


def _functions(usage: Usage, rates: Rates) -> Iterator[Line]:
    used = usage.of_functions()
    if used.requests == 0:
        return
    if rates.function is None:
        raise ConfigError(f"functions were called {used.requests:,} times, but no service is priced: name one.")
    month = _Month(rates.function, rates)
    # Training comes first, so that where it lies in the month's tiers depends on nothing else.
    for phase, word in WORDS.items():
        use, on_paper = usage.of_functions([phase]), phase is Phase.TRAINING
        yield from month.time(word, use.gb_s, use.vcpu_s, on_paper=on_paper)
        yield from month.requests(word, use.requests, on_paper=on_paper)
    if rates.function.cold_start_billed:
        word = f"{used.cold_starts:,} cold start{'' if used.cold_starts == 1 else 's'}"
        yield from month.time(word, used.cold_gb_s, used.cold_vcpu_s, on_paper=False)


class _Month:
    """A service's month: how far its tiers, and what it gives away, are used up, line after line."""

    def __init__(self, service: FunctionService, rates: Rates) -> None:
        self.service = service
        self.tiers = with_free(service.tiers, service.free_gb_s if rates.free_tier else Decimal(0))
        self.free_requests = service.free_requests if rates.free_tier else 0
        self.gb_s, self.num_requests = rates.month_gb_s, rates.month_requests

    def time(self, word: str, gb_s: Decimal, vcpu_s: Decimal, *, on_paper: bool) -> Iterator[Line]:
        name = f"functions, {self.service.name}, {word}"
        for tier, part in graduated(self.tiers, self.gb_s, gb_s):
            above = f", above {tier.from_gb_s:,.0f} GB-s a month" if tier.from_gb_s else ""
            free = "" if tier.usd_per_gb_s else " (free tier)"
            yield self._line(f"{name}{above}{free}", part, "GB-s", tier.usd_per_gb_s, on_paper)
        self.gb_s = EXACT.add(self.gb_s, gb_s)
        if vcpu_s and self.service.usd_per_vcpu_s:
            yield self._line(name, vcpu_s, "vCPU-s", self.service.usd_per_vcpu_s, on_paper)

    def requests(self, word: str, requests: int, *, on_paper: bool) -> Iterator[Line]:
        name = f"requests, {self.service.name}, {word}"
        free = min(requests, max(0, self.free_requests - self.num_requests))
        self.num_requests += requests
        if free:
            yield self._line(f"{name} (free tier)", ratio(free, MILLION), "M", Decimal(0), on_paper)
        if requests > free:
            price = self.service.usd_per_million_requests
            yield self._line(name, ratio(requests - free, MILLION), "M", price, on_paper)

    def _line(self, what: str, amount: Decimal, unit: str, price: Decimal, on_paper: bool) -> Line:
        return Line.priced(what, amount, unit, price, self.service, on_paper=on_paper)


def _transfers(usage: Usage, rates: Rates) -> Iterator[Line]:
    for name in sorted(usage.moved_bytes):
        if name not in rates.transfers:
            raise ConfigError(unknown_name("transfer path", name, rates.transfers))
        path, moved = rates.transfers[name], usage.moved_gb(name)
        if moved:
            yield Line.priced(f"traffic, {name}", moved, "GB", path.usd_per_gb_moved, path, on_paper=False)
