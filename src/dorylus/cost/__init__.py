"""What a run costs: a price book with sources and dates, a meter, a bill, a budget.

Pure: no clock, no network, no torch. Whoever measures tells the :class:`Meter`; :func:`make_bill` turns what it
counted into a :class:`Bill` at the :class:`Rates` of a :class:`PriceBook`; :class:`Budget` says whether to go on.
"""

from dorylus.cost.bill import Basis, Bill, Line, value
from dorylus.cost.budget import Budget, Decision
from dorylus.cost.dollars import dollars
from dorylus.cost.meter import Meter
from dorylus.cost.price_book import PriceBook
from dorylus.cost.pricing import cluster_bill, make_bill
from dorylus.cost.rates import Rates
from dorylus.cost.rows import FunctionService, Instance, Rounding, TransferPath
from dorylus.cost.usage import FunctionUse, Phase, Role, Usage

__all__ = [
    "Basis",
    "Bill",
    "Budget",
    "Decision",
    "FunctionService",
    "FunctionUse",
    "Instance",
    "Line",
    "Meter",
    "Phase",
    "PriceBook",
    "Rates",
    "Role",
    "Rounding",
    "TransferPath",
    "Usage",
    "cluster_bill",
    "dollars",
    "make_bill",
    "value",
]
