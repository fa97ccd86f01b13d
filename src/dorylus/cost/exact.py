"""Exact sums of money: quantities and amounts have a last digit, the twelfth after the point.

So every line is its quantity x its price, rounded once, and lines add up in any order. The arithmetic does not depend
on the decimal context a user's program has set.
"""

from collections.abc import Iterable
from decimal import ROUND_HALF_EVEN, Context, Decimal

QUANTUM = Decimal("1e-12")
EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)


def product(one: Decimal, other: Decimal | int) -> Decimal:
    """One x other, all digits of it."""
    return EXACT.multiply(one, other)


def amount_of(quantity: Decimal, unit_price: Decimal) -> Decimal:
    """Quantity x price, rounded half to even at the last digit."""
    return EXACT.quantize(product(quantity, unit_price), QUANTUM)


def ratio(amount: int | Decimal, unit: int) -> Decimal:
    """An amount in larger units."""
    return EXACT.quantize(EXACT.divide(Decimal(amount), Decimal(unit)), QUANTUM)


def total(amounts: Iterable[Decimal]) -> Decimal:
    """The sum, to the last digit."""
    result = Decimal(0)
    for amount in amounts:
        result = EXACT.add(result, amount)
    return result
