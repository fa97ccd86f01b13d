"""Prices what a run used: the rates of a run, the tiers of a function service's month, the bill they make."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Self

from dorylus.cost.bill import Bill, BillLine
from dorylus.cost.meter import Meter, Phase, Role, Usage
from dorylus.cost.money import EXACT, product, ratio
from dorylus.cost.price_book import FunctionService, Instance, PriceBook, Tier, TransferPath
from dorylus.errors import ConfigError, unknown_name


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The prices of a run.

    ``parameter`` None: parameter servers are of the graph servers' type. ``spot``: servers at their spot factor.
    ``free_tier``: takes off what a month gives away. ``month_gb_s``, ``month_requests``: what the account has used of
    the service this month before the run; it decides where in the tiers the run begins.
    """

    graph: Instance
    parameter: Instance | None = None
    function: FunctionService | None = None
    transfers: Mapping[str, TransferPath] = field(default_factory=dict)
    spot: bool = False
    free_tier: bool = False
    month_gb_s: Decimal = Decimal(0)
    month_requests: int = 0

    def __post_init__(self) -> None:
        for instance in (self.graph, self.parameter):
            if self.spot and instance and instance.spot_factor is None:
                raise ConfigError(f"spot=True, but {instance.name} has no spot factor: add one, or price it on demand.")
        if self.month_gb_s < 0 or self.month_requests < 0:
            raise ConfigError(
                f"month_gb_s={self.month_gb_s}, month_requests={self.month_requests}: what was used cannot be negative."
            )

    @classmethod
    def of(
        cls,
        book: PriceBook,
        graph: str,
        *,
        parameter: str | None = None,
        function: str | None = None,
        spot: bool = False,
        free_tier: bool = False,
        month_gb_s: Decimal | int = 0,
        month_requests: int = 0,
    ) -> Self:
        """The rates of rows that are named."""
        return cls(
            graph=book.instance(graph),
            parameter=None if parameter is None else book.instance(parameter),
            function=None if function is None else book.function(function),
            transfers=book.transfers,
            spot=spot,
            free_tier=free_tier,
            month_gb_s=Decimal(month_gb_s),
            month_requests=month_requests,
        )

    def server(self, role: Role) -> Instance:
        """The type of a role's servers."""
        return self.graph if role is Role.GRAPH else self.parameter or self.graph

    def usd_per_hour(self, role: Role) -> Decimal:
        """What one of them costs an hour."""
        instance = self.server(role)
        return product(instance.usd_per_hour, instance.spot_factor or 1) if self.spot else instance.usd_per_hour


def graduated(tiers: tuple[Tier, ...], start: Decimal, amount: Decimal) -> list[tuple[Tier, Decimal]]:
    """How much of an amount falls into each tier, when ``start`` of the month's GB-s are used already.

    A tier's price holds for what lies in it alone: passing an edge makes nothing before it cheaper.
    """
    edges = [*(tier.from_gb_s for tier in tiers[1:]), Decimal("Infinity")]
    parts, at, end = [], start, EXACT.add(start, amount)
    for tier, edge in zip(tiers, edges, strict=True):
        part = EXACT.subtract(min(end, edge), at)
        if part > 0:
            parts.append((tier, part))
            at = edge
    return parts


def with_free(tiers: tuple[Tier, ...], free_gb_s: Decimal) -> tuple[Tier, ...]:
    """The tiers when the first so many GB-s of a month are free."""
    if not free_gb_s:
        return tiers
    first = [tier for tier in tiers if tier.from_gb_s <= free_gb_s][-1]
    later = [tier for tier in tiers if tier.from_gb_s > free_gb_s]
    return Tier(Decimal(0), Decimal(0)), Tier(free_gb_s, first.usd_per_gb_s), *later


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


def _servers(usage: Usage, rates: Rates) -> Iterator[BillLine]:
    for role in Role:
        instance, price = rates.server(role), rates.usd_per_hour(role)
        name = f"{role.value} servers, {instance.name}{' (spot)' if rates.spot else ''}"
        for phase, word in WORDS.items():
            hours = usage.server_hours(role, phase)
            if hours:
                on_paper = role is Role.GRAPH and phase is Phase.TRAINING
                yield BillLine.priced(f"{name}, {word}", hours, "h", price, instance, on_paper=on_paper)


def _functions(usage: Usage, rates: Rates) -> Iterator[BillLine]:
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

    def time(self, word: str, gb_s: Decimal, vcpu_s: Decimal, *, on_paper: bool) -> Iterator[BillLine]:
        name = f"functions, {self.service.name}, {word}"
        for tier, part in graduated(self.tiers, self.gb_s, gb_s):
            above = f", above {tier.from_gb_s:,.0f} GB-s a month" if tier.from_gb_s else ""
            free = "" if tier.usd_per_gb_s else " (free tier)"
            yield self._line(f"{name}{above}{free}", part, "GB-s", tier.usd_per_gb_s, on_paper)
        self.gb_s = EXACT.add(self.gb_s, gb_s)
        if vcpu_s and self.service.usd_per_vcpu_s:
            yield self._line(name, vcpu_s, "vCPU-s", self.service.usd_per_vcpu_s, on_paper)

    def requests(self, word: str, requests: int, *, on_paper: bool) -> Iterator[BillLine]:
        name = f"requests, {self.service.name}, {word}"
        free = min(requests, max(0, self.free_requests - self.num_requests))
        self.num_requests += requests
        if free:
            yield self._line(f"{name} (free tier)", ratio(free, MILLION), "M", Decimal(0), on_paper)
        if requests > free:
            price = self.service.usd_per_million_requests
            yield self._line(name, ratio(requests - free, MILLION), "M", price, on_paper)

    def _line(self, what: str, amount: Decimal, unit: str, price: Decimal, on_paper: bool) -> BillLine:
        return BillLine.priced(what, amount, unit, price, self.service, on_paper=on_paper)


def _transfers(usage: Usage, rates: Rates) -> Iterator[BillLine]:
    for name in sorted(usage.moved_bytes):
        if name not in rates.transfers:
            raise ConfigError(unknown_name("transfer path", name, rates.transfers))
        path, moved = rates.transfers[name], usage.moved_gb(name)
        if moved:
            yield BillLine.priced(f"traffic, {name}", moved, "GB", path.usd_per_gb_moved, path, on_paper=False)
