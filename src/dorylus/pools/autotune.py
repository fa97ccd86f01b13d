"""Tunes the number of calls in flight while a run trains: the smallest number with the highest throughput.

:class:`Tuner` is pure: completions in, changes of the limit out. In the first epoch, as long as at least as many calls
wait as are under way, the limit doubles every few calls. Then it searches. It keeps a table of the limits it has tried,
each for an epoch, and of how fast each was. The best is the smallest within 5 % of the fastest. From there it tries
twice as many (only if calls wait) and half as many, then steps of 1.4, 1.2 and 1.1 times. When none of these is better
it keeps the best and continues to measure it: a limit that was fast by chance is replaced by the next best. It searches
again after some epochs, less and less often, and whenever the throughput changes although the limit has not.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from math import ceil, floor, sqrt
from statistics import median

from dorylus.errors import ConfigError
from dorylus.pools.clock import Clock
from dorylus.pools.limited import Completion, LimitedPool, Load
from dorylus.pools.pool import TensorPool
from dorylus.saga import Call, Reply

_LONG = 3.0  # in median latencies: a longer gap is due to a call that hung, not to the limit
EQUAL = 0.95  # of two limits, one this fast counts as equally fast
_ALIKE = 0.05  # of two limits that differ by no more than this, one is tried
_FEW = 8  # calls at each limit, at least, while it doubles
_FEWEST = 24  # calls that a limit is measured over; where epochs have fewer, over several epochs
_FIRST_STEP, _LAST_STEP = 2.0, 1.08  # of a search; each step is the root of the one before
_LOOK_AROUND = 1.4, 1.2  # the same, of a search after nothing has changed
_MOST = 1000  # under way by default
_HOLD, _LONGEST_HOLD = 16, 64  # epochs between two searches
_CHANGED = 1.4  # a throughput that is off by this factor, twice in a row, starts a new search
_NEEDED = 0.05  # from this share of waiting calls on, a higher limit is tried


@dataclass(frozen=True)
class Measure:
    """What was measured over some calls.

    ``gaps``: for each kind of call, their number and the busy seconds for each of them. ``queue``: how many calls
    waited on average; ``peak``: the most that were under way; ``waited``: the share of calls that had to wait.
    """

    limit: int
    calls: int
    busy_s: float
    gaps: Mapping[Hashable, tuple[int, float]]
    queue: float
    peak: int
    waited: float

    @property
    def throughput(self) -> float:
        """Calls a second, while there was anything to do."""
        return self.calls / self.busy_s if self.busy_s else 0.0

    def speed_up(self, before: "Measure") -> float:
        """The ratio of the two speeds, on the kinds of calls that both measured."""
        both = self.gaps.keys() & before.gaps.keys()
        calls = {kind: self.gaps[kind][0] + before.gaps[kind][0] for kind in both}
        now_s = sum(calls[kind] * self.gaps[kind][1] for kind in both)
        before_s = sum(calls[kind] * before.gaps[kind][1] for kind in both)
        return before_s / now_s if now_s and before_s else 1.0


class MeasuringWindow:
    """Collects completions at one limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._completions: list[Completion] = []

    @property
    def calls(self) -> int:
        """The number of calls added."""
        return len(self._completions)

    def add(self, completion: Completion) -> None:
        """A call has ended."""
        self._completions.append(completion)

    def measure(self) -> Measure:
        """The measurement over the calls added so far, at least one."""
        by_kind: dict[Hashable, list[Completion]] = defaultdict(list)
        for each in self._completions:
            by_kind[each.kind].append(each)
        seen, busy_s = self._completions, sum(each.busy_s for each in self._completions)
        return Measure(
            self.limit,
            len(seen),
            busy_s,
            {kind: (len(those), _gap_s(those)) for kind, those in by_kind.items()},
            sum(each.waiting_s for each in seen) / busy_s if busy_s else 0.0,
            max(each.peak for each in seen),
            sum(each.waited for each in seen) / len(seen),
        )


def _gap_s(completions: list[Completion]) -> float:
    """The mean busy time that went by for one call of a kind."""
    longest_s = _LONG * median(each.ended_s - each.launched_s for each in completions)
    return sum(min(each.busy_s, longest_s) for each in completions) / len(completions)


class Epochs:
    """Finds the bounds of epochs in a pool's calls: :meth:`begins`, then :meth:`ends`, for each call."""

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._missing: set[Hashable] = set()  # calls that the epoch before had and this one has not had yet

    def begins(self, completion: Completion) -> bool:
        """Whether this call is the first of an epoch, though the one before was not known to be complete."""
        again = _task(completion) in self._seen
        if again:
            self._begin()
        return again

    def ends(self, completion: Completion) -> bool:
        """Whether this call is the last of its epoch."""
        task, expected = _task(completion), bool(self._missing)
        self._seen.add(task)
        self._missing.discard(task)
        over = expected and not self._missing
        if over:
            self._begin()
        return over

    def _begin(self) -> None:
        self._seen, self._missing = set(), set(self._seen)


def _task(completion: Completion) -> Hashable:
    return completion.kind, completion.interval


@dataclass(frozen=True)
class TunerDecision:
    """A change of the limit, with what was measured at the old one: calls a second, and calls that waited."""

    old: int
    new: int
    reason: str
    throughput: float
    queue: float


@dataclass
class _Trial:
    """A limit that was tried: its mean speed relative to the first limit of the search, and its last measurement."""

    measure: Measure
    speed: float
    epochs: int = 1

    def repeat(self, measure: Measure, speed: float) -> None:
        self.epochs += 1
        self.speed += (speed - self.speed) / self.epochs
        self.measure = measure


class Tuner:
    """Completions in, changes of the limit out."""

    def __init__(self, start: int, *, at_most: int | None = None) -> None:
        at_most = max(start, _MOST) if at_most is None else at_most
        if not 1 <= start <= at_most:
            raise ConfigError(f"start={start}: begin with at least 1 call under way, and at most {at_most}.")
        self.limit = start
        self._at_most = at_most
        self._epochs, self._window = Epochs(), MeasuringWindow(start)
        self._doubling, self._aligned = True, False
        self._first: Measure | None = None  # of this search
        self._tried: dict[int, _Trial] = {}
        self._step, self._last_step = _FIRST_STEP, _LAST_STEP
        self._held: int | None = None  # epochs since the search ended; None while it is on
        self._hold = _HOLD
        self._off = 0

    def completed(self, completion: Completion) -> TunerDecision | None:
        """A call has ended: the change of the limit that follows, if any."""
        decision = self._end_epoch() if self._epochs.begins(completion) else None
        self._window.add(completion)
        if self._epochs.ends(completion):
            decision = self._end_epoch() or decision
        return decision or self._double()

    def _double(self) -> TunerDecision | None:
        """In the first epoch, every few calls: whether to double the limit."""
        if not self._doubling or self._window.calls < max(_FEW, self.limit):
            return None
        measure = self._window.measure()
        if measure.queue >= self.limit and 2 * self.limit <= self._at_most:
            return self._change(2 * self.limit, "as many calls wait as are under way", measure)
        self._doubling = False
        return None

    def _end_epoch(self) -> TunerDecision | None:
        """An epoch is over: enter its throughput, and choose the next limit."""
        if not self._aligned:  # the first epoch differs from the others, and this window has not measured all of it
            self._doubling, self._aligned, self._window = False, True, MeasuringWindow(self.limit)
            return None
        if self._window.calls < _FEWEST:
            return None
        measure, self._window = self._window.measure(), MeasuringWindow(self.limit)
        self._watch(measure)
        self._enter(measure)
        return self._change(*self._next(), measure)

    def _change(self, new: int, reason: str, measure: Measure) -> TunerDecision | None:
        if new == self.limit:
            return None
        decision = TunerDecision(self.limit, new, reason, measure.throughput, measure.queue)
        self.limit, self._window = new, MeasuringWindow(new)
        return decision

    def _best(self) -> int:
        """The smallest limit that is as fast as any."""
        top = max(trial.speed for trial in self._tried.values())
        return min(limit for limit, trial in self._tried.items() if trial.speed >= EQUAL * top)

    def _enter(self, measure: Measure) -> None:
        """Enter the measurement at a limit into the table; if the limit was not reached, also at the number reached."""
        self._first = self._first or measure
        speed = measure.speed_up(self._first)
        for limit in {measure.limit, min(measure.limit, measure.peak)}:
            if limit in self._tried:
                self._tried[limit].repeat(measure, speed)
            else:
                self._tried[limit] = _Trial(measure, speed)

    def _next(self) -> tuple[int, str]:
        """The next limit to try, and why; the best one once the search is over."""
        best = self._best()
        measure = self._tried[best].measure
        while self._held is None and self._step > self._last_step:
            more, fewer = ceil(best * self._step), floor(best / self._step)
            if measure.waited > _NEEDED and more <= self._at_most and self._is_new(more):
                return more, f"{measure.waited:.0%} of the calls waited: trying more"
            if fewer >= 1 and self._is_new(fewer):
                return fewer, f"{best} is the best so far: trying fewer"
            self._step = sqrt(self._step)
        self._held = self._held or 0
        return best, f"{best} is the fewest that is as fast as any tried"

    def _is_new(self, limit: int) -> bool:
        """Whether neither this limit nor one like it has been tried."""
        return all(abs(limit - tried) > _ALIKE * limit for tried in self._tried)

    def _watch(self, measure: Measure) -> None:
        """After a search: whether the throughput has changed, or the next search is due."""
        if self._held is None or self._first is None:
            return
        self._held += 1
        known = self._tried.get(self.limit)
        gain = measure.speed_up(self._first) / known.speed if known else 1.0
        self._off = 0 if 1 / _CHANGED < gain < _CHANGED else self._off + 1
        if self._off < 2 and self._held < self._hold:
            return
        self._hold = _HOLD if self._off else min(2 * self._hold, _LONGEST_HOLD)
        self._step, self._last_step = (_FIRST_STEP, _LAST_STEP) if self._off else _LOOK_AROUND
        self._off, self._held, self._first = 0, None, None
        self._tried.clear()


class Autotuned:
    """A pool around a pool: as :class:`LimitedPool`, with a limit that is tuned.

    ``start``: the first limit; ``at_most``: the highest, 1000 or ``start`` if not given. ``decided``
    is called for every change, in the thread whose answer caused it.
    """

    def __init__(
        self,
        inner: TensorPool,
        start: int,
        clock: Clock | None = None,
        decided: Callable[[TunerDecision], None] | None = None,
        *,
        at_most: int | None = None,
    ) -> None:
        self._tuner, self._decided = Tuner(start, at_most=at_most), decided
        self._limited = LimitedPool(inner, start, clock, self._completed)
        self._lock = threading.Lock()

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return self._limited.limit

    @property
    def load(self) -> Load:
        """How many calls wait and are under way now, and totals so far."""
        return self._limited.load

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        """Take a call: submitted now, or when its turn comes."""
        self._limited.submit(call, done, failed)

    def cancel(self, calls: Collection[Call]) -> None:
        """Cancel these calls; those that wait are not submitted."""
        self._limited.cancel(calls)

    def close(self) -> None:
        """Stop; waiting calls are dropped."""
        self._limited.close()

    def _completed(self, completion: Completion) -> None:
        with self._lock:
            decision = self._tuner.completed(completion)
            if decision is not None:
                self._limited.set_limit(decision.new)
        if decision is not None and self._decided is not None:
            self._decided(decision)
