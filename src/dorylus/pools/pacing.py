"""When calls are launched, overdue or failed: time-outs, pauses between launches, and whether the service is down.

Pure: time is passed in. :class:`Policy` holds the numbers, :class:`Durations` how long calls take, :class:`Overdue`
the attempts that took too long, :class:`Pace` how fast a service that throttles accepts calls (additive increase,
multiplicative decrease), :class:`LaunchQueue` the calls that wait, and :class:`Circuit` whether the service is down.
"""

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, fields
from math import inf
from typing import TYPE_CHECKING

from dorylus.errors import ConfigError
from dorylus.pipeline import Task
from dorylus.pools.pool import Unavailable

if TYPE_CHECKING:
    from dorylus.pools.attempts import Attempt, Ticket

_MEAN_WEIGHT, _DEVIATION_WEIGHT = 1 / 8, 1 / 4  # of the newest, once there are enough for a moving mean
_LATE = 2.0  # a later answer counts as this many time-outs late: one very slow call must not raise all time-outs
_Group = tuple[Hashable, int]  # attempts with one time-out: calls of one kind that had as many time-outs before
_LOWERED = 0.85


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The numbers that :class:`Relaunching` decides by; docs/pools.md explains each.

    ``attempts``: how often a call may be tried; throttled and refused launches do not count. ``first_s``,
    ``at_least_s``, ``at_most_s``: the time-out before anything is known, and its bounds afterwards. ``deviations``: by
    how many mean deviations a time-out lies above the mean. ``backoff_s``, ``backoff_at_most_s``: the longest pause
    after a call's first loss, doubled by each further one. ``down_after_s``: how long failures may come, and no
    success, before the service counts as down. ``refused_after_s``: the same for a service that has never answered and
    refuses access (no such function, no credentials).
    """

    attempts: int = 10
    first_s: float = 30.0
    at_least_s: float = 1.0
    at_most_s: float = 120.0
    deviations: float = 4.0
    backoff_s: float = 0.2
    backoff_at_most_s: float = 10.0
    down_after_s: float = 120.0
    refused_after_s: float = 5.0

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self)):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{name}={getattr(self, name)}: a policy's numbers are above 0 and finite.")
        for low, high in (
            ("at_least_s", "at_most_s"),
            ("first_s", "down_after_s"),  # else a slow service would count as down
            ("at_most_s", "down_after_s"),
            ("refused_after_s", "down_after_s"),
            ("backoff_s", "backoff_at_most_s"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise ConfigError(
                    f"{low}={getattr(self, low):g} is longer than {high}={getattr(self, high):g}: lower the first, or "
                    "raise the second."
                )


class Circuit:
    """Counts the time without a success, from the launch of the first attempt that failed since the last one.

    Time without a call does not count. A service that has never answered and reports that it is not there (no such
    function, no credentials) is given less time from then on.
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
        """The seconds in which attempts failed and none succeeded."""
        return max(now_s - self._trouble_since_s, 0.0)

    def succeeded(self, now_s: float) -> None:
        """An attempt was answered."""
        self._succeeded_s = now_s
        self.rest()

    def failed(self, launched_s: float, now_s: float, failure: BaseException) -> None:
        """An attempt launched at that time was lost, throttled or refused, or is overdue."""
        self._trouble_since_s = min(self._trouble_since_s, max(launched_s, self._succeeded_s))
        if isinstance(failure, Unavailable):
            self._refused_since_s = min(self._refused_since_s, now_s)
        self.last_failure = failure

    def rest(self) -> None:
        """No attempt is in flight: earlier failures do not count against the next call."""
        self._trouble_since_s = self._refused_since_s = inf
        self.last_failure = None


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
    """Time-outs by kind of call, from the durations of calls of that kind."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._estimates: dict[Hashable, _Estimate] = {}

    def observe(self, kind: Hashable, seconds: float) -> None:
        """A call of this kind was answered after so many seconds, in time or late."""
        if kind not in self._estimates:
            self._estimates[kind] = _Estimate(0.0, self._policy.first_s / self._policy.deviations)
        self._estimates[kind].add(min(seconds, _LATE * self.timeout_s(kind)))

    def timeout_s(self, kind: Hashable, timeouts: int = 0) -> float:
        """The time-out of a call of this kind, doubled for each time-out the call has had before."""
        policy, estimate = self._policy, self._estimates.get(kind)
        if estimate is None or estimate.answers == 0:
            base = policy.first_s
        else:
            base = max(estimate.mean_s + policy.deviations * estimate.deviation_s, policy.at_least_s)
        return float(min(base * 2.0 ** min(timeouts, 64), policy.at_most_s))


class Overdue:
    """Attempts under way, in groups that share a time-out; within a group the first launched is the first overdue."""

    def __init__(self, durations: Durations) -> None:
        self._durations = durations
        self._groups: dict[_Group, dict[Attempt, float]] = {}
        self._group_of: dict[Attempt, _Group] = {}

    def watch(self, attempt: "Attempt", kind: Hashable, timeouts: int, now_s: float) -> None:
        """An attempt is under way from now on; its call has had so many time-outs before."""
        group = self._group_of[attempt] = (kind, timeouts)
        self._groups.setdefault(group, {})[attempt] = now_s

    def forget(self, attempt: "Attempt") -> None:
        """Stop watching an attempt: it has reported, or its call is closed."""
        group = self._group_of.pop(attempt, None)
        if group is not None:
            members = self._groups[group]
            del members[attempt]
            if not members:
                del self._groups[group]

    def next_s(self) -> float:
        """When the next attempt is overdue; infinite if none is under way."""
        return min((self._due_s(group) for group in self._groups), default=inf)

    def take(self, now_s: float) -> "list[Attempt]":
        """Remove and return the overdue attempts."""
        overdue: list[Attempt] = []
        for group in list(self._groups):
            while group in self._groups and self._due_s(group) <= now_s:
                first = next(iter(self._groups[group]))
                overdue.append(first)
                self.forget(first)
        return overdue

    def _due_s(self, group: _Group) -> float:
        return next(iter(self._groups[group].values())) + self._durations.timeout_s(*group)


class Pace:
    """When the next attempt may be launched: limits the rate at a service that throttles."""

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
        """An attempt is under way; returns its number, for :meth:`throttled`."""
        self._under_way += 1
        self._launches += 1
        return self._launches

    def ended(self) -> None:
        """An attempt has ended, or its result is no longer awaited."""
        self._under_way -= 1

    def succeeded(self) -> None:
        """The service has answered."""
        self._events = 0
        if self._under_way >= self._window - 1:  # only while all of the window is used
            self._window += 1 / self._window

    def throttled(self, number: int, now_s: float, retry_after_s: float | None) -> None:
        """The attempt of this number was throttled."""
        if number <= self._lowered_at:  # of the same burst: the window has been lowered for it
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


class LaunchQueue:
    """Returns the calls that may be launched now, in order of priority (the order of tasks)."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._resting: list[tuple[float, int, Ticket]] = []
        self._ready: list[tuple[Task, int, Ticket]] = []

    def add(self, ticket: "Ticket", when_s: float) -> None:
        """Launch this call, not before then."""
        heapq.heappush(self._resting, (when_s, ticket.number, ticket))

    def take(self, now_s: float) -> "Ticket | None":
        """The next one to be launched now."""
        while self._resting and self._resting[0][0] <= now_s:
            _, number, ticket = heapq.heappop(self._resting)
            heapq.heappush(self._ready, (ticket.call.task, number, ticket))
        if not self._any_ready() or self._pace.ready_s() > now_s:
            return None
        return heapq.heappop(self._ready)[2]

    def next_s(self) -> float:
        """The next time at which :meth:`take` has a call, if no event comes before."""
        pause_s = self._resting[0][0] if self._resting else inf
        return min(pause_s, self._pace.ready_s()) if self._any_ready() else pause_s

    def clear(self) -> None:
        """Remove all waiting calls."""
        self._resting.clear()
        self._ready.clear()

    def _any_ready(self) -> bool:
        """Whether a call is due that no overdue attempt has answered since."""
        while self._ready and not self._ready[0][2].is_open:
            heapq.heappop(self._ready)
        return bool(self._ready)
