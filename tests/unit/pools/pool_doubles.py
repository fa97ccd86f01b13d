"""Calls that compute nothing, a pool whose answers the test controls, and a caller that collects answers."""

from dorylus.pipeline import Kind, Task
from dorylus.pools.clock import ManualClock
from dorylus.pools.pacing import Policy
from dorylus.pools.relaunch import Relaunching
from dorylus.saga.dense import Call, Mode, Reply

# Short, round numbers are easy to follow; no test waits for them.
POLICY = Policy(
    attempts=3,
    first_s=10.0,
    at_least_s=1.0,
    at_most_s=20.0,
    backoff_s=0.5,
    backoff_at_most_s=4.0,
    down_after_s=40.0,
    refused_after_s=5.0,
)


def a_call(interval=0, step=0, mode=Mode.FORWARD, epoch=0):
    return Call(Task(epoch, step, interval, step, Kind.APPLY_VERTEX), mode, body=None, weights={}, inputs=())


class Launched:
    """A call that the pool received; the test answers it."""

    def __init__(self, call, done, failed):
        self.call, self.done, self.failed = call, done, failed

    def answer(self, loss=0.0):
        reply = Reply(loss=loss)
        self.done(reply)
        return reply


class ScriptedPool:
    """Keeps the calls it receives. ``at_once``: functions that handle the next calls inside ``submit``, one each."""

    def __init__(self):
        self.launched = []
        self.at_once = []
        self.cancelled = []
        self.times_closed = 0

    def submit(self, call, done, failed):
        launched = Launched(call, done, failed)
        self.launched.append(launched)
        if self.at_once:
            self.at_once.pop(0)(launched)

    def cancel(self, calls):
        self.cancelled += calls

    def close(self):
        self.times_closed += 1

    @property
    def last(self):
        return self.launched[-1]


class Caller:
    """Submits calls and collects their answers."""

    def __init__(self, pool):
        self.pool = pool
        self.answers = []  # (call, reply or error)

    def submit(self, call):
        note = lambda answer: self.answers.append((call, answer))  # noqa: E731
        self.pool.submit(call, note, note)
        return call

    def answers_to(self, call):
        return [answer for of, answer in self.answers if of is call]

    @property
    def errors(self):
        return [answer for _, answer in self.answers if isinstance(answer, BaseException)]


class Setting:
    """A relaunching pool around a scripted one, on a clock that is moved by hand."""

    def __init__(self, policy=POLICY, **options):
        self.clock, self.inner = ManualClock(), ScriptedPool()
        self.pool = Relaunching(self.inner, policy, self.clock, **options)
        self.caller = Caller(self.pool)

    def submit(self, *args, **options):
        return self.caller.submit(a_call(*args, **options))
