"""The fence of a server: one session at a time; messages of others are refused, and their calls cancelled."""

import threading

import pytest

from dorylus.runtime.fence import Fence, OtherSessionError, SessionTasks

SOON_S = 30.0


@pytest.fixture
def fence():
    made = Fence("server 5")
    made.enter(2)
    return made


@pytest.mark.parametrize("session", [0, 1, 3])
def test_a_message_of_another_session_is_refused_with_the_reason_and_counted_once(fence, session):
    with pytest.raises(OtherSessionError, match=f"'pull' of session {session} is refused: server 5 is in session 2"):
        fence.within(session, "pull").__enter__()
    assert [fence.take_refused(), fence.take_refused()] == [1, 0]


@pytest.mark.parametrize("session", [1, 2])
def test_a_session_begins_once_and_none_begins_again(fence, session):
    with pytest.raises(OtherSessionError, match="is in session 2"):
        fence.enter(session)
    assert fence.is_in(2)


def test_an_accepted_message_is_waited_for_and_may_fail(fence):
    def fails():
        with fence.within(2, "pull"):
            fence.enter(3)
            assert not fence.wait_for_earlier(3, 0.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert fence.wait_for_earlier(3, 0.0)


def test_messages_of_the_new_session_are_not_waited_for(fence):
    fence.enter(3)
    with fence.within(3, "leave"):
        assert fence.wait_for_earlier(3, 0.0)


def test_a_wait_for_an_earlier_session_ends_when_its_last_message_is_handled(fence):
    with fence.within(2, "train_epoch"), fence.within(2, "reply"):
        fence.enter(3)
        left = []
        waiting = threading.Thread(target=lambda: left.append(fence.wait_for_earlier(3, SOON_S)))
        waiting.start()
    waiting.join(SOON_S)
    assert left == [True]


def test_a_wait_for_an_earlier_session_is_refused_when_a_later_one_begins(fence):
    why = []

    def wait():
        try:
            fence.wait_for_earlier(3, SOON_S)
        except OtherSessionError as error:
            why.append(str(error))

    with fence.within(2, "train_epoch"):
        fence.enter(3)
        waiting = threading.Thread(target=wait)
        waiting.start()
        fence.enter(4)
        waiting.join(SOON_S)
    assert why == ["'begin' of session 3 is refused: server 5 is in session 4."]


class KeepingPool:
    """A pool that keeps its calls; ``during``: what happens while it is given one."""

    def __init__(self):
        self.calls, self.cancelled, self.during = [], [], lambda: None

    def submit(self, call, done, failed):
        self.during()
        self.calls.append((call, done))

    def cancel(self, calls):
        self.cancelled += calls


def test_the_calls_of_a_session_that_are_with_the_pool_are_cancelled_when_it_ends(fence):
    pool, taken = KeepingPool(), []
    tasks = SessionTasks(pool, fence, 2)
    for call in ("first", "second", "third"):
        tasks.submit(call, taken.append, taken.append)
    pool.calls[1][1]("reply")
    tasks.close()
    tasks.close()
    assert taken == ["reply"]
    assert pool.cancelled == ["first", "third"]
    with pytest.raises(OtherSessionError, match="session 2 is over"):
        tasks.submit("fourth", taken.append, taken.append)


def test_a_call_that_is_submitted_while_its_session_ends_is_cancelled_once_the_pool_has_it(fence):
    pool = KeepingPool()
    tasks = SessionTasks(pool, fence, 2)
    had = []
    pool.during = lambda: (tasks.close(), had.extend(pool.cancelled), pool.cancelled.clear())
    tasks.submit("call", pytest.fail, pytest.fail)
    assert (had, pool.cancelled) == (["call"], ["call"])
