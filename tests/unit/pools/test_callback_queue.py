import threading

import pytest

from dorylus.pools.clock import CallbackQueue

DEADLINE_S = 30.0


@pytest.fixture
def outbox():
    return CallbackQueue()


def test_deeds_are_carried_out_in_order(outbox):
    done = []
    outbox.run([lambda: done.append(1), lambda: done.append(2)])
    assert done == [1, 2]


def test_what_follows_from_a_deed_comes_after_it_and_not_inside(outbox):
    done = []

    def callback(depth):
        done.append(f"begin {depth}")
        if depth < 3:
            outbox.run([lambda: callback(depth + 1)])
        done.append(f"end {depth}")

    outbox.run([lambda: callback(0), lambda: done.append("other")])
    assert done == [
        "begin 0", "end 0", "other", "begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3",
    ]  # fmt: skip


def test_a_long_chain_of_deeds_is_not_nested(outbox):
    left = [10_000]

    def callback():
        left[0] -= 1
        if left[0]:
            outbox.run([callback])

    outbox.run([callback])
    assert left == [0]


def test_all_deeds_are_carried_out_then_the_first_error_is_raised(outbox):
    done = []
    with pytest.raises(ZeroDivisionError):
        outbox.run([lambda: 1 / 0, lambda: done.append(1), lambda: {}["x"], lambda: done.append(2)])
    assert done == [1, 2]
    outbox.run([lambda: done.append(3)])
    assert done == [1, 2, 3]


def test_other_threads_do_not_wait_for_each_other(outbox):
    inside, over = threading.Event(), threading.Event()
    other = threading.Thread(target=outbox.run, args=([lambda: (inside.set(), over.wait(DEADLINE_S))],))
    other.start()
    assert inside.wait(DEADLINE_S)
    outbox.run([over.set])
    other.join(DEADLINE_S)
    assert not other.is_alive()


def test_once_closed_it_gives_no_answer(outbox):
    outbox.close()
    outbox.answer(pytest.fail)


def test_closing_waits_for_answers_that_other_threads_are_giving(outbox):
    inside, over, order = threading.Event(), threading.Event(), []
    answer = lambda: (inside.set(), over.wait(DEADLINE_S), order.append("answered"))  # noqa: E731
    giver = threading.Thread(target=outbox.answer, args=(answer,))
    closer = threading.Thread(target=lambda: (outbox.close(), order.append("closed")))
    giver.start()
    assert inside.wait(DEADLINE_S)
    closer.start()
    over.set()
    for thread in (giver, closer):
        thread.join(DEADLINE_S)
    assert order == ["answered", "closed"]


def test_an_answer_may_close_it(outbox):
    outbox.answer(lambda: outbox.answer(outbox.close))
    outbox.answer(pytest.fail)
