import threading

import pytest

from dorylus.pools.clock import CallbackQueue

DEADLINE_S = 30.0


@pytest.fixture
def queue():
    return CallbackQueue()


def test_callbacks_run_in_order(queue):
    done = []
    queue.run([lambda: done.append(1), lambda: done.append(2)])
    assert done == [1, 2]


def test_a_callback_queued_by_a_callback_runs_after_it_and_not_inside_it(queue):
    done = []

    def callback(depth):
        done.append(f"begin {depth}")
        if depth < 3:
            queue.run([lambda: callback(depth + 1)])
        done.append(f"end {depth}")

    queue.run([lambda: callback(0), lambda: done.append("other")])
    assert done == [
        "begin 0", "end 0", "other", "begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3",
    ]  # fmt: skip


def test_a_long_chain_of_callbacks_is_not_nested(queue):
    left = [10_000]

    def callback():
        left[0] -= 1
        if left[0]:
            queue.run([callback])

    queue.run([callback])
    assert left == [0]


def test_all_callbacks_run_then_the_first_error_is_raised(queue):
    done = []
    with pytest.raises(ZeroDivisionError):
        queue.run([lambda: 1 / 0, lambda: done.append(1), lambda: {}["x"], lambda: done.append(2)])
    assert done == [1, 2]
    queue.run([lambda: done.append(3)])
    assert done == [1, 2, 3]


def test_other_threads_do_not_wait_for_each_other(queue):
    inside, over = threading.Event(), threading.Event()
    other = threading.Thread(target=queue.run, args=([lambda: (inside.set(), over.wait(DEADLINE_S))],))
    other.start()
    assert inside.wait(DEADLINE_S)
    queue.run([over.set])
    other.join(DEADLINE_S)
    assert not other.is_alive()


def test_a_closed_queue_gives_no_answer(queue):
    queue.close()
    queue.answer(pytest.fail)


def test_closing_waits_for_answers_that_other_threads_are_giving(queue):
    inside, over, order = threading.Event(), threading.Event(), []
    answer = lambda: (inside.set(), over.wait(DEADLINE_S), order.append("answered"))  # noqa: E731
    giver = threading.Thread(target=queue.answer, args=(answer,))
    closer = threading.Thread(target=lambda: (queue.close(), order.append("closed")))
    giver.start()
    assert inside.wait(DEADLINE_S)
    closer.start()
    over.set()
    for thread in (giver, closer):
        thread.join(DEADLINE_S)
    assert order == ["answered", "closed"]


def test_an_answer_may_close_the_queue(queue):
    queue.answer(lambda: queue.answer(queue.close))
    queue.answer(pytest.fail)
