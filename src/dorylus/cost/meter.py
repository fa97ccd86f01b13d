"""The meter: adds up what a run uses. It holds no clock and no price; whoever measures tells it."""

import math
from collections import Counter
from collections.abc import Mapping
from threading import Lock
from typing import Any

from dorylus.cost.rows import Rounding
from dorylus.cost.usage import FunctionUse, Phase, Role, Usage


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
        """Take that ``count`` servers were up for so long."""
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
        """Take one call of a function, also one that failed or whose answer came too late: it is billed all the same.

        ``duration_ms`` leaves the cold start out, ``cold_ms`` is the cold start; a service bills their sum, rounded
        once. What that is more than the call alone would have been is the cold start's part.
        """
        use = self._use(duration_ms, memory_mb, vcpus, cold_ms)
        phase = phase or self.phase
        with self._lock:
            self._functions[phase] = self._functions.get(phase, FunctionUse()) + use

    def add_bytes(self, path: str, num_bytes: int) -> None:
        """Take that bytes went this way: a name of the price book's transfer section."""
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
        """A meter that goes on from what :meth:`to_dict` wrote down."""
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
