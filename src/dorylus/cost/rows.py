"""Rows of the price book: an instance type, a function service, a way data travels. Prices are exact decimals."""

from dataclasses import dataclass
from decimal import Decimal

from dorylus.cost.exact import product

BYTES_PER_GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Row:
    """What every row has: its name, and where and when its price was seen (``date`` as exact as it is known)."""

    name: str
    source: str
    date: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Instance(Row):
    """A server that is rented by the hour."""

    arch: str
    vcpus: int
    memory_gib: Decimal
    usd_per_hour: Decimal
    network_gbps: Decimal | None = None  # what it may send for ever, not in a burst
    spot_factor: Decimal | None = None  # median spot price over on-demand price
    gpu: str = ""
    gpus: int = 0

    @property
    def memory_bytes(self) -> int:
        """Its memory in bytes."""
        return int(product(self.memory_gib, BYTES_PER_GIB))

    def covers(self, cores: int, memory_bytes: int) -> bool:
        """Whether it has at least these cores and this memory."""
        return self.vcpus >= cores and self.memory_bytes >= memory_bytes


@dataclass(frozen=True)
class Tier:
    """A price that holds from so many GB-s of a month on, until the next tier."""

    from_gb_s: Decimal
    usd_per_gb_s: Decimal


@dataclass(frozen=True)
class Rounding:
    """How a service rounds what a call used: time up to a step and a least time, memory up to a step."""

    granularity_ms: int = 1
    minimum_ms: int = 0
    memory_step_mb: int = 1


@dataclass(frozen=True, kw_only=True)
class FunctionService(Row):
    """A service that runs functions, paid by memory x time (GB = 1024 MB), vCPU x time and requests.

    ``free_gb_s`` and ``free_requests`` are what a month gives away, used only where asked for. Limits are None where
    the service has none or they were not looked up.
    """

    tiers: tuple[Tier, ...]
    usd_per_million_requests: Decimal
    granularity_ms: int
    cold_start_billed: bool
    arch: str = ""
    usd_per_vcpu_s: Decimal = Decimal(0)
    minimum_ms: int = 0
    memory_step_mb: int = 1
    free_gb_s: Decimal = Decimal(0)
    free_requests: int = 0
    memory_min_mb: int | None = None
    memory_max_mb: int | None = None
    mb_per_vcpu: int | None = None
    timeout_s: int | None = None
    payload_limit_mb: int | None = None

    @property
    def rounding(self) -> Rounding:
        """How calls are rounded, for the :class:`~dorylus.cost.Meter`."""
        return Rounding(self.granularity_ms, self.minimum_ms, self.memory_step_mb)


@dataclass(frozen=True, kw_only=True)
class TransferPath(Row):
    """A way data travels. Each of ``billed_ends`` pays ``usd_per_gb``: both ends of cross-zone traffic do."""

    what: str
    usd_per_gb: Decimal
    billed_ends: int

    @property
    def usd_per_gb_moved(self) -> Decimal:
        """What moving one GB costs in all."""
        return product(self.usd_per_gb, self.billed_ends)
