"""Properties of the wrappers in any order of events: state machines that hypothesis drives.

The pool inside is a scripted one: rules answer or fail any attempt, current or long replaced, once or twice, inside
``submit`` or later; move the clock; submit; close. Each machine is made for one wrapper, so that it can be turned on
wrappers that are wrong on purpose, too.
"""

from collections import Counter
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pool_doubles import POLICY, Caller, ScriptedPool, a_call

from dorylus.errors import TrainingError
from dorylus.pools.attempts import Attempts
from dorylus.pools.clock import ManualClock
from dorylus.pools.limited import LimitedPool
from dorylus.pools.pool import Exhausted, Lost, Throttled, Unavailable
from dorylus.pools.relaunch import Relaunching
from dorylus.saga.dense import Mode, Reply

FAULTS = {
    "lost": lambda: Lost("gone"),
    "throttled": Throttled,
    "throttled, come back": lambda: Throttled(3.0),
    "unavailable": lambda: Unavailable("connection refused"),
    "body": lambda: ArithmeticError("bad rows"),
}
SOON = ["later", "later", "answer", "raise", *FAULTS]


class Machine(RuleBasedStateMachine):
    """What both wrappers have in common: calls, the pool inside, and that every call is answered once."""

    def begin(self, pool):
        self.pool, self.caller = pool, Caller(pool)
        self.calls, self.closed, self.answers_at_close = [], False, 0
        self.cancelled = set()  # ids of calls that were cancelled while they were open
        self.launches_at_cancel = {}
        self.reports = Counter()  # how often the pool inside has reported, by attempt
        self.free = Counter()  # how often a call was throttled or refused

    @property
    def launched(self):
        return self.inner.launched

    def is_open(self, call):
        return id(call) not in self.cancelled and not self.caller.answers_to(call)

    def report(self, launched, outcome):
        """Let an attempt report; its first report about an open call must take effect at once."""
        answers = len(self.caller.answers_to(launched.call))
        if outcome == "answer":
            reported = launched.answer(loss=float(len(self.caller.answers)))
        else:
            reported = FAULTS[outcome]()
            launched.failed(reported)
        self.reports[id(launched)] += 1
        self.check_effect(launched, reported, answers, first=self.reports[id(launched)] == 1)

    def check_effect(self, launched, reported, answers, first):
        now = self.caller.answers_to(launched.call)
        if answers or self.closed or id(launched.call) in self.cancelled:
            assert len(now) == answers, "a call that is over was answered again"
        elif first and isinstance(reported, Reply | ArithmeticError):
            assert now == [reported], "a result, or an error of the body, was not passed on at once"
        elif first and isinstance(reported, Throttled | Unavailable):
            self.free[id(launched.call)] += 1

    @rule(interval=st.integers(0, 3), step=st.integers(0, 1), how=st.sampled_from(SOON))
    def submit(self, interval, step, how):
        call = a_call(interval, step, mode=Mode.GRADIENT if step else Mode.FORWARD)
        self.inner.at_once = [] if how == "later" else [lambda launched: self.soon(launched, how)]
        if self.closed:
            try:
                self.caller.submit(call)
            except TrainingError:
                return
            raise AssertionError("a closed pool took a call")
        self.calls.append(call)
        self.caller.submit(call)
        self.inner.at_once = []

    def soon(self, launched, how):
        """Report inside submit: its effect comes after submit, so that only the report can be counted here."""
        self.reports[id(launched)] += 1
        if how == "raise":
            raise ArithmeticError("cannot be packed")
        self.free[id(launched.call)] += how not in ("answer", "lost", "body")
        launched.answer() if how == "answer" else launched.failed(FAULTS[how]())

    @precondition(lambda self: self.launched)
    @rule(data=st.data(), outcome=st.sampled_from(["answer", *FAULTS]))
    def any_attempt_reports(self, data, outcome):
        self.report(data.draw(st.sampled_from(self.launched)), outcome)

    @precondition(lambda self: self.launched)
    @rule(outcome=st.sampled_from(["answer", "answer", *FAULTS]))
    def the_newest_reports(self, outcome):
        self.report(self.launched[-1], outcome)

    # Not too soon: a cancelled call does not test the tries it had left.
    @precondition(lambda self: not self.closed and sum(map(self.is_open, self.calls)) > 3)
    @rule(data=st.data())
    def cancel(self, data):
        """The pool inside cancels the calls that were launched, and none of them is launched again."""
        calls = data.draw(st.lists(st.sampled_from([call for call in self.calls if self.is_open(call)]), min_size=1))
        launched, before = {id(each.call) for each in self.launched}, len(self.inner.cancelled)
        self.cancelled |= {id(call) for call in calls}
        self.pool.cancel(calls)
        handed_on = {id(call) for call in self.inner.cancelled[before:]}
        assert handed_on == {id(call) for call in calls} & launched, "the pool inside cancelled other calls"

    @invariant()
    def no_call_is_launched_after_it_was_cancelled(self):
        times = Counter(id(each.call) for each in self.launched if id(each.call) in self.cancelled)
        again = [call for call, count in times.items() if count > self.launches_at_cancel.get(call, count)]
        assert not again, "a call that was cancelled was launched"
        self.launches_at_cancel |= {call: times[call] for call in self.cancelled}

    @rule()
    def close(self):
        if len(self.calls) > 6:  # not too soon: what comes before is more interesting
            self.pool.close()
            self.closed, self.answers_at_close = True, len(self.caller.answers)

    @invariant()
    def no_call_is_answered_twice(self):
        twice = Counter(id(call) for call, _ in self.caller.answers)
        assert all(count == 1 for count in twice.values()), "a call was answered twice"

    @invariant()
    def nothing_is_answered_after_close(self):
        late = self.closed and len(self.caller.answers) > self.answers_at_close
        assert not late, "a call was answered after close"

    def everything_is_answered(self, drain):
        """From now on the service works: no call may remain open."""
        self.inner.at_once = []
        for _ in range(40):
            if self.closed or all(not self.is_open(call) for call in self.calls):
                return
            for launched in self.launched:
                if not self.reports[id(launched)] and self.is_open(launched.call):
                    self.report(launched, "answer")
            drain()
        left = [call.task for call in self.calls if self.is_open(call)]
        raise AssertionError(f"calls were lost: {left}")


def relaunching_machine(attempts=Attempts):
    """The machine for :class:`Relaunching`, with these decisions on attempts."""

    class RelaunchingMachine(Machine):
        @initialize(seed=st.integers(0, 1000))
        def start(self, seed):
            self.clock, self.inner = ManualClock(), ScriptedPool()
            pool = Relaunching(self.inner, POLICY, self.clock)
            pool._attempts = attempts(POLICY, Random(seed))
            self.begin(pool)
            self.succeeded_s, self.down = None, False

        def check_effect(self, launched, reported, answers, first):
            if isinstance(reported, Reply):
                self.succeeded_s = self.clock.now()
            super().check_effect(launched, reported, answers, first)

        def soon(self, launched, how):
            if how == "answer":
                self.succeeded_s = self.clock.now()
            super().soon(launched, how)

        @rule(seconds=st.sampled_from([0.1, 0.7, 3.0, 11.0, 25.0]))
        def time_passes(self, seconds):
            self.clock.advance(seconds)

        @invariant()
        def counts_add_up(self):
            counts = self.pool.counts
            launched = {id(each.call) for each in self.launched}
            reported = counts.losses + counts.throttled + counts.refused + counts.duplicates
            failed = [error for error in self.caller.errors if isinstance(error, ArithmeticError)]
            replies = [answer for _, answer in self.caller.answers if isinstance(answer, Reply)]
            right = counts.calls == len(self.calls)
            right &= counts.launches == len(self.launched) >= counts.timeouts
            right &= counts.relaunches == counts.launches - len(launched)
            right &= self.closed or sum(self.reports.values()) == reported + len(failed) + len(replies)
            assert right, "the counts do not add up"

        @invariant()
        def a_call_is_tried_as_often_as_the_policy_allows(self):
            tries = Counter(id(each.call) for each in self.launched) - self.free
            assert all(count <= POLICY.attempts for count in tries.values()), "a call was tried too often"
            for call, answer in self.caller.answers:
                if isinstance(answer, Exhausted):
                    assert tries[id(call)] == POLICY.attempts, "a call was given up too soon"

        @invariant()
        def the_service_is_called_down_once_and_only_when_nothing_has_succeeded_for_long(self):
            if not any(isinstance(error, Unavailable) for error in self.caller.errors):
                return
            if not self.down:
                self.down = True
                patience = POLICY.refused_after_s if self.succeeded_s is None else POLICY.down_after_s
                waited = self.clock.now() - (self.succeeded_s or 0.0)
                assert waited >= patience - 1e-6, "the service was called down too soon"
            left = [call for call in self.calls if self.is_open(call)]
            assert self.closed or not left, "the service is down, and not every call has failed"

        @invariant()
        def something_is_scheduled_while_a_call_is_open(self):
            waits = not self.closed and any(self.is_open(call) for call in self.calls)
            assert not waits or self.clock.next_s() is not None, "a call is open, and nothing will ever happen"

        def teardown(self):
            if hasattr(self, "pool"):
                self.everything_is_answered(lambda: self.clock.advance(5.0))
                if not self.closed:
                    self.clock.advance(1000.0)
                    assert self.clock.next_s() is None

    return RelaunchingMachine


class _Witness(ScriptedPool):
    """Passes every call to ``look`` before it is launched."""

    def __init__(self, look):
        super().__init__()
        self._look = look

    def submit(self, call, done, failed):
        self._look(call)
        super().submit(call, done, failed)


def limited_machine(make=LimitedPool):
    """The machine for :class:`LimitedPool`, made this way."""

    class LimitedMachine(Machine):
        @initialize(limit=st.integers(1, 4))
        def start(self, limit):
            self.inner = _Witness(self.in_order)
            self.begin(make(self.inner, limit, ManualClock()))
            self.limit, self.most, self.overtaken = limit, 0, False

        @property
        def under_way(self):
            not_cancelled = [each for each in self.launched if id(each.call) not in self.cancelled]
            return [each for each in not_cancelled if not self.reports[id(each)]]

        @property
        def waiting(self):
            gone = {id(each.call) for each in self.launched} | self.cancelled
            return [call for call in self.calls if id(call) not in gone]

        def in_order(self, call):
            first = min(range(len(self.waiting)), key=lambda k: (self.waiting[k].task, k))
            self.overtaken |= self.waiting[first] is not call

        @rule(limit=st.integers(1, 6))
        def set_limit(self, limit):
            self.limit = limit
            self.pool.set_limit(limit)

        def check_effect(self, launched, reported, answers, first):
            now = self.caller.answers_to(launched.call)
            if self.closed or not first or id(launched.call) in self.cancelled:
                assert len(now) == answers, "a call that is over was answered again, or after close"
            else:
                assert now == [reported], "what the pool inside reported was not passed on at once"

        @invariant()
        def as_many_are_under_way_as_may_be_and_no_more(self):
            if self.closed:
                return
            load, count = self.pool.load, len(self.under_way)
            assert (load.limit, load.under_way, load.waiting) == (self.limit, count, len(self.waiting)), "a false load"
            assert not self.waiting or count >= self.limit, "a call waits though there is room"
            assert count <= max(self.limit, self.most), "more are under way than may be"
            self.most = count  # calls that are under way when the limit falls stay so

        @invariant()
        def no_call_is_overtaken(self):
            assert not self.overtaken, "a call overtook one that comes before it"

        def teardown(self):
            if hasattr(self, "pool"):
                self.everything_is_answered(lambda: None)

    return LimitedMachine
