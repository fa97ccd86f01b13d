"""What a run used, counted in whole numbers, so that no order of adding changes the sum.

Time of servers in nanoseconds; of functions, memory x time in MB·ms and vCPU x time in thousandths of a vCPU·ms.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from enum import StrEnum
from typing import Any, Self

from dorylus.cost.exact import ratio
from dorylus.cost.rows import BYTES_PER_GIB
from dorylus.errors import DataError


class Role(StrEnum):
    """Whose time it was."""

    GRAPH = "graph"
    PARAMETER = "parameter"


class Phase(StrEnum):
    """What it was spent on. Only training counts on the paper's basis."""

    SETUP = "setup"
    TRAINING = "training"
    EVALUATION = "evaluation"


@dataclass(frozen=True)
class FunctionUse:
    """What functions used, as billed. What their cold starts added to it is counted apart."""

    requests: int = 0
    mb_ms: int = 0
    millivcpu_ms: int = 0
    cold_starts: int = 0
    cold_mb_ms: int = 0
    cold_millivcpu_ms: int = 0
    cold_us: int = 0  # the time of cold starts themselves, not rounded

    @property
    def gb_s(self) -> Decimal:
        """GB-seconds without cold starts; a GB is 1024 MB."""
        return ratio(self.mb_ms, 1_024_000)

    @property
    def cold_gb_s(self) -> Decimal:
        """GB-seconds that cold starts added."""
        return ratio(self.cold_mb_ms, 1_024_000)

    @property
    def vcpu_s(self) -> Decimal:
        """vCPU-seconds without cold starts."""
        return ratio(self.millivcpu_ms, 1_000_000)

    @property
    def cold_vcpu_s(self) -> Decimal:
        """vCPU-seconds that cold starts added."""
        return ratio(self.cold_millivcpu_ms, 1_000_000)

    def average(self, requests: int) -> "FunctionUse":
        """What so many requests more would use if each were an average one of these, without a cold start."""
        parts = max(1, self.requests)
        return FunctionUse(requests, self.mb_ms * requests // parts, self.millivcpu_ms * requests // parts)

    def __add__(self, other: "FunctionUse") -> "FunctionUse":
        return FunctionUse(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True)
class Usage:
    """What a run used until now: ``server_ns`` by (role, phase), ``functions`` by phase, ``moved_bytes`` by path."""

    server_ns: Mapping[tuple[Role, Phase], int] = field(default_factory=dict)
    functions: Mapping[Phase, FunctionUse] = field(default_factory=dict)
    moved_bytes: Mapping[str, int] = field(default_factory=dict)

    def server_hours(self, role: Role, phase: Phase) -> Decimal:
        """Hours of all servers of a role in a phase, together."""
        return ratio(self.server_ns.get((role, phase), 0), 3600 * 10**9)

    def of_functions(self, phases: Iterable[Phase] = tuple(Phase)) -> FunctionUse:
        """What functions used in these phases."""
        return sum((self.functions.get(phase, FunctionUse()) for phase in phases), FunctionUse())

    def moved_gb(self, path: str) -> Decimal:
        """GB (2^30 bytes, as traffic is billed) that went this way."""
        return ratio(self.moved_bytes.get(path, 0), BYTES_PER_GIB)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for a checkpoint or the run log."""
        servers: dict[str, dict[str, int]] = {}
        for (role, phase), amount in sorted(self.server_ns.items()):
            servers.setdefault(role.value, {})[phase.value] = amount
        functions = {phase.value: dict(vars(use)) for phase, use in sorted(self.functions.items())}
        return {"server_ns": servers, "functions": functions, "moved_bytes": dict(sorted(self.moved_bytes.items()))}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` wrote down."""
        try:
            servers = {
                (Role(role), Phase(phase)): _whole(amount)
                for role, phases in data["server_ns"].items()
                for phase, amount in phases.items()
            }
            functions = {
                Phase(phase): FunctionUse(**{name: _whole(amount) for name, amount in use.items()})
                for phase, use in data["functions"].items()
            }
            return cls(servers, functions, {path: _whole(amount) for path, amount in data["moved_bytes"].items()})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"what a run used cannot be read: {error!r}. Give what Usage.to_dict wrote.") from error


def _whole(amount: Any) -> int:
    if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
        raise ValueError(f"{amount!r} is not a count")
    return amount
