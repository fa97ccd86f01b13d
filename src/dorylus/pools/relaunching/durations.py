"""How long calls take, and so when one is overdue. Pure: no clock.

Calls of one kind (the same step in the same mode) do the same work on about as many rows. Of each kind:

    time-out = mean + deviations · deviation     at least ``at_least_s``, at most ``at_most_s``

with a moving mean of durations and a moving mean of their distances from it. The deviation starts at
``first_s / deviations``, so the first call's time-out is ``first_s`` by the same formula, and it comes down with every
answer: to a quarter after three, to a hundredth after fifteen.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from dorylus.pools.relaunching.policy import Policy

_MEAN_WEIGHT, _DEVIATION_WEIGHT = 1 / 8, 1 / 4  # of the newest, once there are enough for a moving mean
_LATE = 2.0  # an answer later than this many time-outs counts as this late: one that crawls must not stop the clock


@dataclass
class _Estimate:
    mean_s: float
    deviation_s: float
    answers: int = 0

    def add(self, seconds: float) -> None:
        self.answers += 1
        plain = 1 / (self.answers + 1)
        if self.answers == 1:
            self.mean_s = seconds
        self.deviation_s += max(_DEVIATION_WEIGHT, plain) * (abs(seconds - self.mean_s) - self.deviation_s)
        self.mean_s += max(_MEAN_WEIGHT, plain) * (seconds - self.mean_s)


class Durations:
    """Time-outs by kind of call, from how long calls of that kind have taken."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._estimates: dict[Hashable, _Estimate] = {}

    def observe(self, kind: Hashable, seconds: float) -> None:
        """A call of this kind has answered after so long, in time or late."""
        if kind not in self._estimates:
            self._estimates[kind] = _Estimate(0.0, self._policy.first_s / self._policy.deviations)
        self._estimates[kind].add(min(seconds, _LATE * self.timeout_s(kind)))

    def timeout_s(self, kind: Hashable, timeouts: int = 0) -> float:
        """After how long a call of this kind is overdue; twice as long for each time-out that call has had before."""
        policy, estimate = self._policy, self._estimates.get(kind)
        if estimate is None or estimate.answers == 0:
            base = policy.first_s
        else:
            base = max(estimate.mean_s + policy.deviations * estimate.deviation_s, policy.at_least_s)
        return float(min(base * 2.0 ** min(timeouts, 64), policy.at_most_s))
