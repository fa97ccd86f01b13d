"""Amounts as people read them."""

from decimal import ROUND_HALF_EVEN, Decimal

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
