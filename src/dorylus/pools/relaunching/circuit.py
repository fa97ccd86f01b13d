"""Whether the service is down: failures come, and no success. Pure: time is passed in."""

from math import inf

from dorylus.pools.faults import Unavailable
from dorylus.pools.relaunching.policy import Policy


class Circuit:
    """Counts the time without a success, from the launch of the first attempt that failed since the last one.

    Time in which nothing was asked does not count. A service that has never answered and says itself that it is not
    there (no such function, no credentials) is given less time from then on.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._trouble_since_s = self._refused_since_s = inf
        self._succeeded_s = -inf
        self.last_failure: BaseException | None = None

    @property
    def opens_s(self) -> float:
        """When the service counts as down, if nothing succeeds until then."""
        down_s = self._trouble_since_s + self._policy.down_after_s
        if self._succeeded_s > -inf:
            return down_s
        return min(down_s, self._refused_since_s + self._policy.refused_after_s)

    def trouble_s(self, now_s: float) -> float:
        """For how long nothing has succeeded, while attempts failed."""
        return max(now_s - self._trouble_since_s, 0.0)

    def succeeded(self, now_s: float) -> None:
        """Something has answered."""
        self._succeeded_s = now_s
        self.rest()

    def failed(self, launched_s: float, now_s: float, failure: BaseException) -> None:
        """An attempt launched then was lost, throttled, refused, or is overdue."""
        self._trouble_since_s = min(self._trouble_since_s, max(launched_s, self._succeeded_s))
        if isinstance(failure, Unavailable):
            self._refused_since_s = min(self._refused_since_s, now_s)
        self.last_failure = failure

    def rest(self) -> None:
        """Nothing is under way: whatever failed before says nothing about what is asked next."""
        self._trouble_since_s = self._refused_since_s = inf
        self.last_failure = None
