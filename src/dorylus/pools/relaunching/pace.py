"""How fast calls may be launched at a service that throttles: additive increase, multiplicative decrease. Pure.

The rate of launches is held by how many attempts may be under way at once, as TCP does it: a new one goes when an old
one ends, so the rate follows the service's own. Nothing is held back until the service throttles. Then that *window*
becomes 85 % of what the service took; it grows by one each time as many attempts succeed as it holds. If the service
goes on throttling with no success in between, launches also pause, twice as long each time. A burst of launches that is
throttled is one event, however many of its calls come back.
"""

from math import inf

from dorylus.pools.relaunching.policy import Policy

_LOWERED = 0.85


class Pace:
    """When the next launch may go."""

    def __init__(self, policy: Policy) -> None:
        self._pause_s, self._longest_pause_s = policy.backoff_s, policy.backoff_at_most_s
        self._longest_rest_s = policy.down_after_s
        self._window = inf
        self._under_way = self._launches = 0
        self._lowered_at = 0  # launches when the window was last lowered
        self._accepted = 0  # of the burst that was throttled then
        self._events = 0  # throttled bursts since the last success
        self._resting_until_s = -inf

    @property
    def window(self) -> float:
        """How many attempts may be under way; infinite as long as nothing was throttled."""
        return self._window

    def ready_s(self) -> float:
        """The moment from which the next launch may go; infinite if an attempt must end first."""
        return inf if self._under_way + 1 > self._window else self._resting_until_s

    def launched(self) -> int:
        """An attempt is under way; gives its number, for :meth:`throttled`."""
        self._under_way += 1
        self._launches += 1
        return self._launches

    def ended(self) -> None:
        """An attempt is not under way any more, or not waited for any more."""
        self._under_way -= 1

    def succeeded(self) -> None:
        """The service has answered."""
        self._events = 0
        if self._under_way >= self._window - 1:  # it is in use: only then a wider one makes a difference
            self._window += 1 / self._window

    def throttled(self, number: int, now_s: float, retry_after_s: float | None) -> None:
        """The attempt of this number came back throttled."""
        if number <= self._lowered_at:  # of the same burst as what lowered the window
            self._accepted -= 1
        else:
            self._accepted, self._lowered_at = self._under_way, self._launches
            self._events += 1
            if self._events > 1:
                pause_s = self._pause_s * 2.0 ** min(self._events - 2, 64)
                self._rest(now_s + min(pause_s, self._longest_pause_s))
        self._window = max(min(self._window, _LOWERED * self._accepted), 1.0)
        if retry_after_s is not None:
            self._rest(now_s + min(max(retry_after_s, 0.0), self._longest_rest_s))

    def _rest(self, until_s: float) -> None:
        self._resting_until_s = max(self._resting_until_s, until_s)
