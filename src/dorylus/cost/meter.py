"""The meter: adds up what a run uses. It has no clock and no prices: its callers measure.

All counts are whole numbers, so that sums do not depend on the order of adding.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from enum import StrEnum
from threading import Lock
from typing import Any, Self

from dorylus.cost.money import ratio
from dorylus.cost.price_book import BYTES_PER_GIB, Rounding
from dorylus.errors import DataError


class Role(StrEnum):
    """The kind of server whose time was used."""

    GRAPH = "graph"
    PARAMETER = "parameter"


class Phase(StrEnum):
    """The phase of the run that used it. Only training counts on the paper's basis."""

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
        """GB (2^30 bytes, as traffic is billed) that went by this path."""
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


class Meter:
    """Adds up servers' time, functions' calls and bytes moved; any thread may add.

    Each call of a function is rounded up as its service does before it is added. ``phase`` says what things are used
    for until it is set anew; :meth:`snapshot` is what was used until now, and ``start`` what a resumed run had used.
    """

    def __init__(self, rounding: Rounding | None = None, *, start: Usage | None = None) -> None:
        start = start or Usage()
        self.rounding = rounding or Rounding()
        self.phase = Phase.SETUP
        self._lock = Lock()
        self._server_ns = Counter(start.server_ns)
        self._functions = dict(start.functions)
        self._moved_bytes = Counter(start.moved_bytes)

    def add_servers(self, role: Role, seconds: float, *, count: int = 1, phase: Phase | None = None) -> None:
        """Adds the time that ``count`` servers were up."""
        amount = _scaled("seconds", seconds, 10**9) * _at_least_0("count", count)
        with self._lock:
            self._server_ns[role, phase or self.phase] += amount

    def add_call(
        self,
        duration_ms: float,
        memory_mb: int,
        *,
        vcpus: float = 0.0,
        cold_ms: float = 0.0,
        phase: Phase | None = None,
    ) -> None:
        """Adds one call of a function, also one that failed or whose answer came too late: it is billed all the same.

        ``duration_ms`` leaves the cold start out, ``cold_ms`` is the cold start; a service bills their sum, rounded
        once. The difference from the call alone is the cold start's part.
        """
        use = self._use(duration_ms, memory_mb, vcpus, cold_ms)
        phase = phase or self.phase
        with self._lock:
            self._functions[phase] = self._functions.get(phase, FunctionUse()) + use

    def add_bytes(self, path: str, num_bytes: int) -> None:
        """Adds bytes that went by a path: a name of the price book's transfer section."""
        with self._lock:
            self._moved_bytes[path] += _at_least_0("num_bytes", num_bytes)

    def snapshot(self) -> Usage:
        """What was used until now."""
        with self._lock:
            return Usage(dict(self._server_ns), dict(self._functions), dict(self._moved_bytes))

    def to_dict(self) -> dict[str, Any]:
        """What was used until now, as plain data, for a checkpoint."""
        return self.snapshot().to_dict()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], rounding: Rounding | None = None) -> "Meter":
        """A meter that continues from the data of :meth:`to_dict`."""
        return cls(rounding, start=Usage.from_dict(data))

    def _use(self, duration_ms: float, memory_mb: int, vcpus: float, cold_ms: float) -> FunctionUse:
        duration_ns, cold_ns = _scaled("duration_ms", duration_ms, 10**6), _scaled("cold_ms", cold_ms, 10**6)
        step = self.rounding.memory_step_mb
        memory = -(-_at_least_0("memory_mb", memory_mb) // step) * step
        millivcpus = _scaled("vcpus", vcpus, 1000)
        alone = self._billed_ms(duration_ns)
        more = self._billed_ms(duration_ns + cold_ns) - alone
        return FunctionUse(
            requests=1,
            mb_ms=alone * memory,
            millivcpu_ms=alone * millivcpus,
            cold_starts=int(cold_ns > 0),
            cold_mb_ms=more * memory,
            cold_millivcpu_ms=more * millivcpus,
            cold_us=round(cold_ns / 1000),
        )

    def _billed_ms(self, duration_ns: int) -> int:
        """Rounded up to whole steps, at least one of them, and at least the least time that is billed."""
        step = self.rounding.granularity_ms
        num_steps = max(1, -(-duration_ns // (step * 10**6)))
        return max(num_steps * step, self.rounding.minimum_ms)


def _scaled(name: str, value: float, scale: int) -> int:
    # Before rounding up: 300.00000000000006 ms is 300 ms and a rounding error, not 301.
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name}={value}: a meter takes what is finite and not negative.")
    return round(value * scale)


def _at_least_0(name: str, value: int) -> int:
    if value < 0:
        raise ValueError(f"{name}={value}: a meter takes what is not negative.")
    return int(value)
