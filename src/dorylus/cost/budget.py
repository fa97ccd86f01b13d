"""The budget: whether a run may train another epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from dorylus.cost.money import dollars
from dorylus.errors import ConfigError, given

LOOK_BACK = 3  # epochs: one slow epoch is remembered for a while, one slow start is forgotten


@dataclass(frozen=True)
class BudgetDecision:
    """Whether to go on, what the next epoch is expected to cost, and why, in words."""

    go_on: bool
    expected_usd: Decimal
    reason: str


@dataclass(frozen=True)
class Budget:
    """What a run may cost.

    Another epoch is trained while what was spent, what the dearest of the last three epochs cost, and what it takes
    to close the run stay within ``limit_usd``. So an epoch begins only while money is left, and the limit is passed, if
    at all, by less than the cost of the one epoch that was dearer than those before it.
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
