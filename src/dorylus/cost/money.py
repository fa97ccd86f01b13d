"""Exact sums of money: quantities and amounts have a last digit, the twelfth after the point.

So every line is its quantity x its price, rounded once, and lines add up in any order. The arithmetic does not depend
on the decimal context a user's program has set. Amounts are also formatted here.
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


CENT = Decimal("0.01")


def dollars(usd: Decimal | float) -> str:
    """To the cent; below a cent, two digits that are not zero: $13.80, $0.19, $0.0042, $0.00000021."""
    amount = Decimal(usd)
    if not amount:
        return "$0"
    last = CENT if amount >= CENT else Decimal(1).scaleb(amount.adjusted() - 1)
    return f"${amount.quantize(last, ROUND_HALF_EVEN):,f}"


def quantity(amount: Decimal) -> str:
    """Four digits, or all before the point: 0.2793, 12.5, 1,250,000."""
    if amount == amount.to_integral_value() or abs(amount) >= 1000:
        return f"{amount:,.0f}"
    digits = max(0, 3 - amount.adjusted())
    text = f"{amount:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
