"""The bill, whose lines sum to the total to the last digit; the budget, which decides on another epoch; their settings.

*paper* counts what the paper's tables count: graph servers and functions, while training. *full* counts all there is:
parameter servers, set-up, evaluation, cold starts and traffic too. One bill has both; every line says whether it is
on the paper's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Self

from dorylus.cost.money import amount_of, dollars, quantity, total
from dorylus.cost.price_book import Row
from dorylus.errors import ConfigError, DataError, given, unknown_name
from dorylus.settings import MOST_USD, SettingGroup, Settings, file, optional, real, setting, text


@dataclass(frozen=True, kw_only=True)
class CostSettings(Settings):
    """What a run is priced by, and what it may cost."""

    instance: str | None = setting(
        None,
        "Instance type the bill is priced for; the nearest to this machine when not given.",
        optional(text),
        recut=True,
        group=SettingGroup.MONEY,
    )
    price_book: str | None = setting(
        None, "TOML file of prices of your own, put over ours.", optional(file), recut=True, group=SettingGroup.MONEY
    )
    budget_usd: float | None = setting(
        None,
        "Stop, with a checkpoint, before the bill passes this many dollars.",
        optional(real(0, MOST_USD, above=True, usual=5)),
        recut=True,
        group=SettingGroup.MONEY,
    )


class Basis(StrEnum):
    """What is counted."""

    PAPER = "paper"
    FULL = "full"


@dataclass(frozen=True)
class BillLine:
    """One item: a quantity, its price with the source of that price, and the amount in dollars."""

    what: str
    quantity: Decimal
    unit: str
    unit_price: Decimal
    usd: Decimal
    source: str
    date: str
    on_paper: bool

    @classmethod
    def priced(cls, what: str, amount: Decimal, unit: str, unit_price: Decimal, row: Row, *, on_paper: bool) -> Self:
        """The line of an amount at a price that a row of the price book gives."""
        return cls(what, amount, unit, unit_price, amount_of(amount, unit_price), row.source, row.date, on_paper)

    def row(self) -> tuple[str, str, str, str]:
        """The line as text: (what, quantity, unit price, dollars)."""
        amount, price = quantity(self.quantity), f"${self.unit_price:f}"
        return self.what, f"{amount} {self.unit}", f"{price}/{self.unit}", dollars(self.usd)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: f"{held:f}" if isinstance(held, Decimal) else held for name, held in vars(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` wrote down."""
        amounts = {name: Decimal(data[name]) for name in ("quantity", "unit_price", "usd")}
        return cls(**{**data, **amounts})


@dataclass(frozen=True)
class Bill:
    """What a run cost. ``items`` are all its lines; :meth:`lines` and :meth:`total` are those of a basis."""

    items: tuple[BillLine, ...] = ()

    def lines(self, basis: str = Basis.FULL) -> tuple[BillLine, ...]:
        """The lines that count on a basis."""
        if basis not in tuple(Basis):
            raise ConfigError(unknown_name("basis", basis, [each.value for each in Basis]))
        return tuple(line for line in self.items if basis == Basis.FULL or line.on_paper)

    def total(self, basis: str = Basis.FULL) -> Decimal:
        """Their sum, exact."""
        return total(line.usd for line in self.lines(basis))

    @property
    def total_usd(self) -> float:
        """What the run cost in all."""
        return float(self.total())

    @property
    def paper_usd(self) -> float:
        """What it cost as the paper counts."""
        return float(self.total(Basis.PAPER))

    def value(self, seconds: float, basis: str = Basis.PAPER) -> float:
        """Performance per dollar, as the paper has it: 1 / (time x cost)."""
        return value(seconds, float(self.total(basis)))

    def rows(self, basis: str = Basis.FULL) -> list[tuple[str, str, str, str]]:
        """The bill as text: (what, quantity, unit price, dollars) of each line, then the total."""
        lines = [line.row() for line in self.lines(basis)]
        return [*lines, ("total", "", "", dollars(self.total(basis)))]

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for a result or the run log; the lines' amounts as decimals in text, which lose no digit."""
        lines = [line.to_dict() for line in self.items]
        return {"total_usd": self.total_usd, "paper_usd": self.paper_usd, "lines": lines}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` wrote down."""
        try:
            return cls(tuple(BillLine.from_dict(line) for line in data["lines"]))
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"a bill cannot be read: {error!r}. Give what Bill.to_dict wrote.") from error


def value(seconds: float, usd: float) -> float:
    """Performance per dollar: 1 / (time x cost). Only the product gives the paper's figures."""
    if seconds <= 0 or usd <= 0:
        raise ConfigError(f"seconds={seconds}, usd={usd}: value is 1 / (time x cost), so both must be positive.")
    return 1 / (seconds * usd)


LOOK_BACK = 3  # epochs: a slow one counts for a while, a slow start does not count for ever


@dataclass(frozen=True)
class BudgetDecision:
    """Whether to train another epoch, its expected cost, and the reason as text."""

    go_on: bool
    expected_usd: Decimal
    reason: str


@dataclass(frozen=True)
class Budget:
    """What a run may cost.

    Another epoch is trained while the amount spent, the cost of the dearest of the last three epochs and the cost of
    closing the run together stay within ``limit_usd``. So the limit can be exceeded only by an epoch that costs more
    than those before it, and by less than its cost.
    """

    limit_usd: Decimal

    def __post_init__(self) -> None:
        if not self.limit_usd.is_finite() or self.limit_usd <= 0:
            raise ConfigError(f"{given('budget_usd', str(self.limit_usd))}: a budget is a positive number of dollars.")

    @classmethod
    def of(cls, budget_usd: Decimal | float | str) -> "Budget":
        """The budget of a number as people write it: 5, 0.3, "12.50"."""
        try:
            return cls(Decimal(str(budget_usd)))
        except ArithmeticError as error:
            raise ConfigError(
                f"{given('budget_usd', budget_usd)}: a budget is a positive number of dollars."
            ) from error

    def decide(self, spent: Decimal, epochs: Sequence[Decimal], closing: Decimal = Decimal(0)) -> BudgetDecision:
        """Whether the next epoch fits: ``spent`` until now, what each epoch so far cost, and what closing will.

        Nothing is known of the first epoch's cost: it begins if anything is left.
        """
        expected = max(epochs[-LOOK_BACK:], default=Decimal(0))
        left = self.limit_usd - spent - closing
        go_on = expected <= left if epochs else left > 0
        words = f"{dollars(spent)} of {dollars(self.limit_usd)} spent, the next epoch costs about {dollars(expected)}"
        words += f" and closing the run {dollars(closing)}" if closing else ""
        return BudgetDecision(go_on, expected, words)
