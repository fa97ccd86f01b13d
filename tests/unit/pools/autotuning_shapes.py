"""Shapes of services and servers on which the autotuner is tried, in simulated time.

``python tests/unit/pools/autotuning_shapes.py`` prints the table of docs/pools.md: epoch times at fixed limits, and
where the autotuner ends when it starts at 1 and at 100.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from simulated_epochs import Epochs
from simulated_services import Service, bandwidth, contended

from dorylus.pools.autotune import Autotuned
from dorylus.pools.clock import ManualClock
from dorylus.pools.limited import LimitedPool
from dorylus.pools.pacing import Policy
from dorylus.pools.relaunch import Relaunching

LIMITS = (1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 64, 100)
STARTS = (1, 100)
TUNED_EPOCHS, LAST = 45, 15
STEPS = (1.0, 2.0, 0.5)  # how much longer calls of each step take


@dataclass(frozen=True)
class Shape:
    """A service, and the epochs of a server that uses it."""

    service: Callable[[ManualClock], Any]
    epochs: dict[str, Any] = field(default_factory=dict)

    def run(self, make: Callable[[Any, ManualClock], Any], epochs: int) -> tuple[Any, list[float]]:
        """The pool that ``make`` made, and the seconds of each epoch run through it."""
        clock = ManualClock()
        pool = make(self.service(clock), clock)
        workload = Epochs(clock, **{"intervals": 60, "steps": len(STEPS), **self.epochs})
        return pool, [workload.run(pool, epoch) for epoch in range(epochs)]

    def fixed_s(self, limit: int, epochs: int = 4) -> float:
        """Seconds of an epoch at a fixed limit."""
        _, seconds = self.run(lambda inner, clock: LimitedPool(inner, limit, clock), 2 + epochs)
        return mean(seconds[2:])

    def tuned(self, start: int) -> tuple[float, int, list[Any]]:
        """Seconds of the last epochs, trials among them; where the limit ended; and all decisions."""
        decisions: list[Any] = []
        make = lambda inner, clock: Autotuned(inner, start, clock, decisions.append)  # noqa: E731
        pool, seconds = self.run(make, TUNED_EPOCHS)
        return mean(seconds[-LAST:]), pool.limit, decisions


def _service(**options: Any) -> Callable[[ManualClock], Any]:
    return lambda clock: Service(clock, weights=STEPS, **options)


def _throttled(clock: ManualClock) -> Any:
    return Relaunching(Service(clock, latency_s=0.05, concurrency=20, weights=STEPS), Policy(), clock)


SHAPES = {
    "wire: 50 ms, then a share of one wire": Shape(_service(latency_s=0.05, work_s=0.007, speed=bandwidth)),
    "cores: 8, and more than 8 hinder each other": Shape(_service(work_s=0.05, speed=contended(8, 0.1))),
    "throttled: at most 20 at a time": Shape(_throttled),
    "slow server: 2 cores make a call every 5 ms": Shape(
        _service(latency_s=0.05), {"sparse_s": 0.01, "cores": 2, "barrier": False}
    ),
    "slow server with barriers": Shape(_service(latency_s=0.05), {"sparse_s": 0.01, "cores": 2}),
    "bursts of 30 behind barriers": Shape(_service(latency_s=0.05), {"intervals": 30}),
    "bursts of 30, 6 cores that hinder each other": Shape(
        _service(work_s=0.05, speed=contended(6, 0.2)), {"intervals": 30}
    ),
    "uneven: latencies vary by 60 %": Shape(_service(latency_s=0.05, work_s=0.007, speed=bandwidth, noise=0.6)),
}


def table() -> str:
    """Milliseconds an epoch, as Markdown."""
    lines = [
        "| shape | " + " | ".join(map(str, LIMITS)) + " | from 1 | from 100 |",
        "|---" * (len(LIMITS) + 3) + "|",
    ]
    for name, shape in SHAPES.items():
        fixed = [shape.fixed_s(limit, LAST) for limit in LIMITS]
        cells = [f"{1e3 * each:.0f}" for each in fixed]
        cells[fixed.index(min(fixed))] = f"**{1e3 * min(fixed):.0f}**"
        for start in STARTS:
            seconds, limit, _ = shape.tuned(start)
            cells.append(f"{1e3 * seconds:.0f} ({seconds / min(fixed) - 1:+.0%}, at {limit})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
