from pool_doubles import a_call

from dorylus.pools.limited import CallQueue
from dorylus.saga.dense import Mode


def join(queue, call, now_s=0.0):
    queue.add(call, None, None, now_s)
    return call


def go(queue, now_s=0.0):
    return queue.take_ready(now_s)


def end(queue, place, now_s):
    assert queue.remove(place, now_s)
    return queue.completed(place, now_s)


def test_no_more_calls_than_the_limit_start_and_the_others_wait():
    queue = CallQueue(2, 0.0)
    calls = [join(queue, a_call(interval)) for interval in range(5)]
    gone = go(queue)
    assert [place.call for place in gone] == calls[:2]
    assert go(queue) == []
    queue.remove(gone[0], 1.0)
    assert [place.call for place in go(queue)] == calls[2:3]
    assert queue.load(1.0)[:3] == (2, 2, 2)


def test_waiting_calls_start_in_task_order_then_in_arrival_order():
    queue = CallQueue(1, 0.0)
    join(queue, a_call(0))
    (first,) = go(queue)
    tasks = [a_call(3, epoch=1), a_call(2), a_call(1, step=1), a_call(2)]
    for call in tasks:
        join(queue, call)
    order = []
    while queue.load(0.0).waiting:
        queue.remove(first, 0.0)
        (first,) = go(queue)
        order.append(first.call)
    assert [id(call) for call in order] == [id(tasks[k]) for k in (1, 3, 2, 0)]


def test_a_lower_limit_lets_those_under_way_finish():
    queue = CallQueue(3, 0.0)
    for interval in range(5):
        join(queue, a_call(interval))
    gone = go(queue)
    queue.limit = 1
    assert go(queue) == []
    queue.remove(gone[0], 0.0)
    queue.remove(gone[1], 0.0)
    assert go(queue) == []
    queue.remove(gone[2], 0.0)
    assert len(go(queue)) == 1


def test_a_call_leaves_once():
    queue = CallQueue(1, 0.0)
    join(queue, a_call())
    (place,) = go(queue)
    assert queue.remove(place, 0.0)
    assert not queue.remove(place, 0.0)


def test_time_is_busy_while_a_call_is_in_the_queue_and_idle_otherwise():
    queue = CallQueue(1, 10.0)
    join(queue, a_call(), 12.0)
    (place,) = go(queue, 12.0)
    end(queue, place, 15.0)
    assert queue.load(16.0)[3:] == (1, 3.0, 3.0)  # completed, busy, idle


def test_a_completion_covers_the_time_since_the_one_before():
    queue = CallQueue(1, 0.0)
    join(queue, a_call(7), 1.0)
    join(queue, a_call(8, mode=Mode.LOSS), 1.0)
    join(queue, a_call(9), 1.0)
    (place,) = go(queue, 1.0)
    first = end(queue, place, 3.0)
    assert (first.interval, first.launched_s, first.ended_s, first.waited) == (7, 1.0, 3.0, False)
    assert (first.busy_s, first.waiting_s, first.peak) == (2.0, 4.0, 1)
    (place,) = go(queue, 3.0)
    second = end(queue, place, 8.0)
    assert (second.interval, second.waited) == (8, True)
    assert (second.busy_s, second.waiting_s) == (5.0, 5.0)


def test_idle_time_between_two_completions_is_not_counted_as_busy():
    queue = CallQueue(4, 0.0)
    join(queue, a_call(), 0.0)
    end(queue, go(queue, 0.0)[0], 1.0)
    join(queue, a_call(), 100.0)
    assert end(queue, go(queue, 100.0)[0], 102.0).busy_s == 2.0


def test_calls_of_the_same_step_mode_and_body_are_of_one_kind():
    queue = CallQueue(10, 0.0)
    body, other = object(), object()
    calls = [a_call(0), a_call(1, epoch=3), a_call(0, step=1), a_call(0, mode=Mode.LOSS), a_call(0)]
    for call, of in zip(calls, [body, body, body, body, other], strict=True):
        object.__setattr__(call, "body", of)
        join(queue, call)
    kinds = [end(queue, place, 1.0).kind for place in sorted(go(queue), key=lambda each: calls.index(each.call))]
    assert kinds[0] == kinds[1]
    assert len(set(kinds)) == 4


def test_a_cleared_queue_is_empty():
    queue = CallQueue(1, 0.0)
    join(queue, a_call())
    join(queue, a_call(1))
    (place,) = go(queue)
    queue.clear()
    assert not queue.remove(place, 0.0)
    assert go(queue) == []
