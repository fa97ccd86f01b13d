import pytest
from pool_doubles import Caller, ScriptedPool, a_call

from dorylus.errors import ConfigError, TrainingError
from dorylus.pools.clock import ManualClock
from dorylus.pools.limited import LimitedPool
from dorylus.saga.dense import Reply


class AtOncePool:
    """Answers inside submit, as the threads pool does; knows how deeply it is nested."""

    def __init__(self):
        self.depth = self.deepest = self.calls = 0

    def submit(self, call, done, failed):
        self.depth += 1
        self.calls += 1
        self.deepest = max(self.deepest, self.depth)
        done(Reply())
        self.depth -= 1

    def close(self):
        pass


@pytest.fixture
def inner():
    return ScriptedPool()


def make(inner, limit, **options):
    pool = LimitedPool(inner, limit, ManualClock(), **options)
    return pool, Caller(pool)


def intervals(inner):
    return [each.call.task.interval for each in inner.launched]


def test_no_more_than_the_limit_are_under_way(inner):
    pool, caller = make(inner, 2)
    for interval in range(4):
        caller.submit(a_call(interval))
    assert intervals(inner) == [0, 1]
    inner.launched[1].answer()
    assert intervals(inner) == [0, 1, 2]
    assert pool.load[:4] == (2, 1, 2, 1)


def test_a_call_that_fails_makes_room_too(inner):
    _, caller = make(inner, 1)
    caller.submit(a_call(0))
    caller.submit(a_call(1))
    inner.last.failed(ArithmeticError("bad rows"))
    assert intervals(inner) == [0, 1]
    assert [str(error) for error in caller.errors] == ["bad rows"]


def test_a_call_that_the_pool_inside_will_not_take_fails_and_makes_room(inner):
    def refuse(launched):
        raise ArithmeticError("cannot be packed")

    inner.at_once = [refuse, refuse]
    _, caller = make(inner, 1)
    caller.submit(a_call(0))
    caller.submit(a_call(1))
    assert [str(error) for error in caller.errors] == ["cannot be packed"] * 2


def test_a_higher_limit_starts_waiting_calls(inner):
    pool, caller = make(inner, 1)
    for interval in range(4):
        caller.submit(a_call(interval))
    pool.set_limit(3)
    assert intervals(inner) == [0, 1, 2]
    assert pool.limit == 3


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(inner, limit):
    with pytest.raises(ConfigError, match=f"limit={limit}: at least one call"):
        LimitedPool(inner, limit)
    with pytest.raises(ConfigError, match=f"limit={limit}: at least one call"):
        LimitedPool(inner, 1).set_limit(limit)


def test_the_watch_callback_runs_after_each_answer_and_before_the_next_call_starts(inner):
    seen = []
    _, caller = make(
        inner, 1, watch=lambda completion: seen.append((completion, len(caller.answers), intervals(inner)))
    )
    for interval in range(3):
        caller.submit(a_call(interval))
    inner.launched[0].answer()
    inner.launched[1].failed(ArithmeticError())
    inner.launched[2].answer()
    assert [(each.interval, answers, gone) for each, answers, gone in seen] == [(0, 1, [0]), (2, 3, [0, 1, 2])]


def test_the_watch_callback_may_change_the_limit(inner):
    pool, caller = make(inner, 1, watch=lambda completion: pool.set_limit(3))
    for interval in range(5):
        caller.submit(a_call(interval))
    inner.last.answer()
    assert intervals(inner) == [0, 1, 2, 3]


def test_a_pool_that_answers_at_once_is_not_nested_however_many_wait():
    inner = AtOncePool()
    pool, caller = make(inner, 1)
    pool.submit(a_call(), lambda reply: [caller.submit(a_call(k)) for k in range(5000)], pytest.fail)
    assert len(caller.answers) == 5000
    assert inner.deepest == 1


def test_an_answer_that_comes_twice_is_given_once_and_makes_room_once(inner):
    _, caller = make(inner, 2)
    for interval in range(6):
        caller.submit(a_call(interval))
    inner.launched[0].answer()
    inner.launched[0].answer()
    assert intervals(inner) == [0, 1, 2]
    assert len(caller.answers) == 1


def test_nothing_is_answered_and_no_call_starts_after_close(inner):
    pool, caller = make(inner, 1)
    caller.submit(a_call(0))
    caller.submit(a_call(1))
    pool.close()
    inner.launched[0].answer()
    assert (caller.answers, intervals(inner), inner.times_closed) == ([], [0], 1)
    with pytest.raises(TrainingError, match="submitted to a pool that is closed"):
        caller.submit(a_call(2))


class TickingClock(ManualClock):
    """A clock that advances at every reading, as a real one does."""

    def now(self):
        self.advance(1e-6)
        return super().now()


def test_a_call_that_goes_at_once_has_not_waited(inner):
    seen = []
    pool = LimitedPool(inner, 1, TickingClock(), seen.append)
    caller = Caller(pool)
    caller.submit(a_call(interval=0))
    caller.submit(a_call(interval=1))
    inner.launched[0].done(Reply())
    inner.launched[1].done(Reply())
    assert [completion.waited for completion in seen] == [False, True]


def test_calls_that_are_cancelled_while_they_wait_never_go(inner):
    pool, caller = make(inner, 1)
    calls = [caller.submit(a_call(interval)) for interval in range(4)]
    pool.cancel(calls[1:3])
    inner.last.answer()
    assert intervals(inner) == [0, 3]
    assert inner.cancelled == []
    assert pool.load[:4] == (1, 0, 1, 1)


def test_of_calls_that_are_cancelled_together_none_takes_the_place_of_another(inner):
    """A session that ends cancels all its calls, under way and waiting."""
    pool, caller = make(inner, 2)
    old = [caller.submit(a_call(interval)) for interval in range(5)]
    pool.cancel(old)
    assert intervals(inner) == [0, 1]
    assert {id(call) for call in inner.cancelled} == {id(call) for call in old[:2]}
    new = [caller.submit(a_call(interval)) for interval in (7, 8, 9)]
    assert intervals(inner) == [0, 1, 7, 8]
    for launched in inner.launched[:4]:
        launched.answer()
    assert [call for call, _ in caller.answers] == new[:2]


def test_a_call_that_is_cancelled_while_it_is_handed_on_is_cancelled_at_the_pool_inside_afterwards(inner):
    pool, caller = make(inner, 1)
    call, cancelled_inside = a_call(0), []

    def cancel(launched):
        pool.cancel([call])
        cancelled_inside.extend(inner.cancelled)
        inner.cancelled.clear()

    inner.at_once = [cancel]
    caller.submit(call)
    assert [len(cancelled_inside), len(inner.cancelled)] == [1, 1]
    caller.submit(a_call(1))
    assert intervals(inner) == [0, 1]
