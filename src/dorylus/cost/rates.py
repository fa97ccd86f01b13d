"""Which rows of the price book a run is priced by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Self

from dorylus.cost.exact import product
from dorylus.cost.price_book import PriceBook
from dorylus.cost.rows import FunctionService, Instance, TransferPath
from dorylus.cost.usage import Role
from dorylus.errors import ConfigError


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
