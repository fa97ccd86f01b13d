from pool_doubles import a_call

from dorylus.pools.limited import CallQueue
from dorylus.saga.dense import Mode


def join(line, call, now_s=0.0):
    line.join(call, None, None, now_s)
    return call


def go(line, now_s=0.0):
    return line.go(now_s)


def end(line, place, now_s):
    assert line.left(place, now_s)
    return line.completed(place, now_s)


def test_at_most_so_many_go_and_the_others_wait():
    line = CallQueue(2, 0.0)
    calls = [join(line, a_call(interval)) for interval in range(5)]
    gone = go(line)
    assert [place.call for place in gone] == calls[:2]
    assert go(line) == []
    line.left(gone[0], 1.0)
    assert [place.call for place in go(line)] == calls[2:3]
    assert line.load(1.0)[:3] == (2, 2, 2)


def test_those_that_wait_go_in_the_order_of_their_tasks_then_of_their_coming():
    line = CallQueue(1, 0.0)
    join(line, a_call(0))
    (first,) = go(line)
    tasks = [a_call(3, epoch=1), a_call(2), a_call(1, step=1), a_call(2)]
    for call in tasks:
        join(line, call)
    order = []
    while line.load(0.0).waiting:
        line.left(first, 0.0)
        (first,) = go(line)
        order.append(first.call)
    assert [id(call) for call in order] == [id(tasks[k]) for k in (1, 3, 2, 0)]


def test_a_lower_limit_lets_those_under_way_finish():
    line = CallQueue(3, 0.0)
    for interval in range(5):
        join(line, a_call(interval))
    gone = go(line)
    line.limit = 1
    assert go(line) == []
    line.left(gone[0], 0.0)
    line.left(gone[1], 0.0)
    assert go(line) == []
    line.left(gone[2], 0.0)
    assert len(go(line)) == 1


def test_a_call_leaves_once():
    line = CallQueue(1, 0.0)
    join(line, a_call())
    (place,) = go(line)
    assert line.left(place, 0.0)
    assert not line.left(place, 0.0)


def test_time_is_busy_while_anybody_is_in_the_line_and_idle_else():
    line = CallQueue(1, 10.0)
    join(line, a_call(), 12.0)
    (place,) = go(line, 12.0)
    end(line, place, 15.0)
    assert line.load(16.0)[3:] == (1, 3.0, 3.0)  # completed, busy, idle


def test_a_completion_tells_what_happened_since_the_one_before():
    line = CallQueue(1, 0.0)
    join(line, a_call(7), 1.0)
    join(line, a_call(8, mode=Mode.LOSS), 1.0)
    join(line, a_call(9), 1.0)
    (place,) = go(line, 1.0)
    first = end(line, place, 3.0)
    assert (first.interval, first.launched_s, first.ended_s, first.waited) == (7, 1.0, 3.0, False)
    assert (first.busy_s, first.waiting_s, first.peak) == (2.0, 4.0, 1)
    (place,) = go(line, 3.0)
    second = end(line, place, 8.0)
    assert (second.interval, second.waited) == (8, True)
    assert (second.busy_s, second.waiting_s) == (5.0, 5.0)


def test_idle_time_between_two_completions_is_not_counted_as_busy():
    line = CallQueue(4, 0.0)
    join(line, a_call(), 0.0)
    end(line, go(line, 0.0)[0], 1.0)
    join(line, a_call(), 100.0)
    assert end(line, go(line, 100.0)[0], 102.0).busy_s == 2.0


def test_calls_of_the_same_step_mode_and_body_are_of_one_kind():
    line = CallQueue(10, 0.0)
    body, other = object(), object()
    calls = [a_call(0), a_call(1, epoch=3), a_call(0, step=1), a_call(0, mode=Mode.LOSS), a_call(0)]
    for call, of in zip(calls, [body, body, body, body, other], strict=True):
        object.__setattr__(call, "body", of)
        join(line, call)
    kinds = [end(line, place, 1.0).kind for place in sorted(go(line), key=lambda each: calls.index(each.call))]
    assert kinds[0] == kinds[1]
    assert len(set(kinds)) == 4


def test_a_line_that_is_cleared_knows_nobody():
    line = CallQueue(1, 0.0)
    join(line, a_call())
    join(line, a_call(1))
    (place,) = go(line)
    line.clear()
    assert not line.left(place, 0.0)
    assert go(line) == []
