"""What a run costs: a price book with sources and dates, a meter, a bill, a budget.

Pure: no clock, no network, no torch. A :class:`Meter` counts what its callers measure; :func:`make_bill` turns its
counts into a :class:`Bill` at the :class:`Rates` of a :class:`PriceBook`; :class:`Budget` decides whether to continue.
"""

from dorylus.cost.bill import Bill, Budget, BudgetDecision, CostSettings, value
from dorylus.cost.meter import FunctionUse, Meter, Phase, Role, Usage
from dorylus.cost.money import amount_of, dollars
from dorylus.cost.price_book import PriceBook, Rounding
from dorylus.cost.pricing import Rates, cluster_bill, make_bill

__all__ = [
    "Bill",
    "Budget",
    "BudgetDecision",
    "CostSettings",
    "FunctionUse",
    "Meter",
    "Phase",
    "PriceBook",
    "Rates",
    "Role",
    "Rounding",
    "Usage",
    "amount_of",
    "cluster_bill",
    "dollars",
    "make_bill",
    "value",
]
