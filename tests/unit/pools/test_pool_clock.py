import threading

import pytest

from dorylus.pools.clock import ManualClock, RealClock

DEADLINE_S = 30.0


@pytest.fixture
def clock():
    made = RealClock()
    yield made
    made.close()


def timers():
    return [thread for thread in threading.enumerate() if thread.name == "dorylus-timer"]


def test_calls_are_made_in_order_of_time_by_one_thread(clock):
    made, over = [], threading.Event()
    begun, ready = threading.Event(), threading.Event()
    clock.call_later(0, lambda: (begun.set(), ready.wait(DEADLINE_S)))  # keeps the thread until all of them are due
    assert begun.wait(DEADLINE_S)
    clock.call_later(-1.0, lambda: (made.append(("last", threading.get_ident())), over.set()))
    clock.call_later(-200.0, lambda: made.append(("second", threading.get_ident())))
    clock.call_later(-300.0, lambda: made.append(("first", threading.get_ident())))
    ready.set()
    assert over.wait(DEADLINE_S)
    assert [name for name, _ in made] == ["first", "second", "last"]
    assert len({thread for _, thread in made}) == 1
    assert made[0][1] != threading.get_ident()


def test_an_earlier_call_does_not_wait_for_a_later_one(clock):
    over = threading.Event()
    clock.call_later(1000, pytest.fail)
    clock.call_later(0.001, over.set)
    assert over.wait(DEADLINE_S)


def test_time_never_goes_back(clock):
    times = [clock.now() for _ in range(100)]
    assert times == sorted(times)


def test_a_cancelled_call_is_not_made(clock):
    over = threading.Event()
    held = threading.Event()
    clock.call_later(0, lambda: held.wait(DEADLINE_S))
    clock.call_later(0, pytest.fail).cancel()
    clock.call_later(0, over.set)
    held.set()
    assert over.wait(DEADLINE_S)


def test_reading_the_time_starts_no_thread(clock):
    clock.now()
    assert not timers()


def test_a_clock_that_closes_stops_its_thread_and_drops_pending_calls(clock):
    clock.call_later(1000, pytest.fail)
    assert timers()
    clock.close()
    clock.close()
    assert not timers()
    clock.call_later(0, pytest.fail)
    assert not timers()


def test_a_clock_may_be_closed_by_what_it_calls(clock):
    over = threading.Event()
    clock.call_later(0, lambda: (clock.close(), over.set()))
    assert over.wait(DEADLINE_S)
    for thread in timers():
        thread.join(DEADLINE_S)
    assert not timers()


def test_an_error_of_what_is_called_is_reported_and_the_next_call_is_made(clock, monkeypatch):
    reported, over = [], threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_value))
    clock.call_later(0, lambda: 1 / 0)
    clock.call_later(0, over.set)
    assert over.wait(DEADLINE_S)
    assert [type(error) for error in reported] == [ZeroDivisionError]


def test_a_manual_clock_stands_still_until_it_is_moved():
    clock = ManualClock(5.0)
    made = []
    clock.call_later(2.0, lambda: made.append(clock.now()))
    assert (clock.now(), made) == (5.0, [])
    clock.advance(1.9)
    assert (clock.now(), made) == (6.9, [])
    clock.advance(1.0)
    assert (clock.now(), made) == (7.9, [7.0])


def test_a_manual_clock_makes_calls_in_order_including_those_added_by_calls():
    clock = ManualClock()
    made = []
    clock.call_later(3.0, lambda: made.append("third"))
    clock.call_later(1.0, lambda: (made.append("first"), clock.call_later(1.0, lambda: made.append("second"))))
    clock.call_later(0.5, lambda: made.append("never")).cancel()
    clock.advance(10.0)
    assert made == ["first", "second", "third"]


def test_a_manual_clock_steps_from_call_to_call():
    clock = ManualClock()
    clock.call_later(1.5, lambda: None)
    assert clock.next_s() == 1.5
    assert clock.step()
    assert clock.now() == 1.5
    assert clock.next_s() is None
    assert not clock.step()
