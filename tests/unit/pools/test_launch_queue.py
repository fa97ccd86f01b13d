from math import inf

import pytest
from pool_doubles import POLICY, a_call

from dorylus.pools.attempts import Ticket
from dorylus.pools.pacing import LaunchQueue, Pace


@pytest.fixture
def pace():
    return Pace(POLICY)


@pytest.fixture
def queue(pace):
    return LaunchQueue(pace)


def ticket(number, interval=0):
    return Ticket(number, a_call(interval), None, None)


def take_all(queue, now_s):
    return list(iter(lambda: queue.take(now_s), None))


def test_a_call_is_not_launched_before_its_pause_is_over(queue):
    waits = ticket(0)
    queue.add(waits, 5.0)
    assert queue.take(4.9) is None
    assert queue.next_s() == 5.0
    assert queue.take(5.0) is waits
    assert queue.next_s() == inf


def test_calls_whose_pause_is_over_are_launched_in_task_order(queue):
    tickets = [ticket(number, interval) for number, interval in enumerate([3, 1, 2, 1])]
    for number, each in enumerate(tickets):
        queue.add(each, float(number))
    assert [each.number for each in take_all(queue, 10.0)] == [1, 3, 2, 0]


def test_when_an_attempt_must_end_first_the_next_launch_has_no_time(queue, pace):
    pace.throttled(pace.launched(), 0.0, None)
    queue.add(ticket(0), 0.0)
    assert queue.take(0.0) is None
    assert queue.next_s() == inf
    pace.ended()
    assert queue.take(0.0) is not None


def test_the_services_retry_delay_sets_the_time_of_the_next_launch(queue, pace):
    number = pace.launched()
    pace.ended()
    pace.throttled(number, 0.0, 7.0)
    queue.add(ticket(0), 0.0)
    assert queue.take(6.9) is None
    assert queue.next_s() == 7.0
    assert queue.take(7.0) is not None


def test_a_call_that_was_answered_while_it_waited_is_not_launched(queue):
    answered, waits = ticket(0), ticket(1, 5)
    for each in (answered, waits):
        queue.add(each, 0.0)
    answered.is_open = False
    assert take_all(queue, 0.0) == [waits]
    assert queue.next_s() == inf


def test_a_queue_that_is_cleared_is_empty(queue):
    queue.add(ticket(0), 0.0)
    queue.add(ticket(1), 5.0)
    queue.clear()
    assert take_all(queue, 100.0) == []
    assert queue.next_s() == inf
