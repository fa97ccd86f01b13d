"""What functions were used for: counters that a meter reads."""

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace


@dataclass
class Usage:
    """Totals. Bytes are as functions see them: ``bytes_in`` what they were sent or fetched, ``bytes_out`` the rest.

    ``duplicates``: parts that came when another attempt had already brought them, or too late for anyone.
    """

    invocations: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    billed_ms: float = 0.0
    init_ms: float = 0.0
    fetch_ms: float = 0.0
    compute_ms: float = 0.0
    push_ms: float = 0.0
    cold_starts: int = 0
    duplicates: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Usage)))


class UsageCounter:
    """Counts the usage of each kind of task (AV, ∇AV and so on); any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_kind: dict[str, Usage] = defaultdict(Usage)

    def add(self, kind: str, **amounts: float) -> None:
        """Add to some counters of a kind of task."""
        with self._lock:
            usage = self._by_kind[kind]
            for name, amount in amounts.items():
                setattr(usage, name, getattr(usage, name) + amount)

    def snapshot(self) -> Mapping[str, Usage]:
        """The usage so far, by kind of task."""
        with self._lock:
            return {kind: replace(usage) for kind, usage in self._by_kind.items()}

    def total(self) -> Usage:
        """The usage so far, of all kinds together."""
        return sum(self.snapshot().values(), Usage())
