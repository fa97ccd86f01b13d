"""A service's month: graduated prices of GB-seconds, and what it gives away."""

from decimal import Decimal

from dorylus.cost.exact import EXACT
from dorylus.cost.rows import Tier


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
