"""The rows of the closing table that say what a run cost."""

from dorylus.cost import Bill, dollars
from dorylus.report.summary import Summary


def bill_rows(summary: Summary) -> list[tuple[str, str]]:
    """The total, and under it every line of the bill; nothing where a run has none."""
    told = (summary.result or {}).get("bill")
    if not told:
        return []
    bill = Bill.from_dict(told)
    lines = [f"{what}: {quantity} at {price} = {usd}" for what, quantity, price, usd in bill.rows()[:-1]]
    total = f"{dollars(bill.total())} ({dollars(bill.total('paper'))} counted as the paper does)"
    return [("bill", "\n".join([total, *lines]))]
