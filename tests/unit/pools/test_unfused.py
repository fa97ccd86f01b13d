import pytest
import torch
from linear_functions import Waiting, a_call, assert_same

from dorylus.pools.functions.unfused import Unfused
from dorylus.pools.pool import ThreadsPool
from dorylus.saga import dense
from dorylus.saga.dense import IGNORED, Mode, Targets


class Recording(ThreadsPool):
    """A pool that records the modes of its calls, and may fail one mode."""

    def __init__(self, failing=None):
        self.modes, self.closed, self._failing = [], False, failing

    def submit(self, call, done, failed):
        self.modes.append(call.mode)
        if call.mode is self._failing:
            failed(ArithmeticError("not today"))
        else:
            super().submit(call, done, failed)

    def close(self):
        self.closed = True


def test_a_call_for_the_loss_becomes_a_forward_and_a_gradient_call_with_the_same_reply():
    pool, call = Recording(), a_call(Mode.LOSS)
    call.targets.labels[3] = IGNORED
    assert_same(Waiting(Unfused(pool), call).reply(), dense.run(call))
    assert pool.modes == [Mode.FORWARD, Mode.GRADIENT]


def test_losses_over_many_classes_too():
    call = a_call(Mode.LOSS)
    labels = (torch.rand(10, 3) < 0.5).float()
    labels[2, 1] = IGNORED
    object.__setattr__(call, "targets", Targets("bce", labels, 4.0))
    assert_same(Waiting(Unfused(Recording()), call).reply(), dense.run(call))


@pytest.mark.parametrize("mode", [Mode.FORWARD, Mode.GRADIENT])
def test_other_calls_are_handed_on(mode):
    pool, call = Recording(), a_call(mode)
    assert_same(Waiting(Unfused(pool), call).reply(), dense.run(call))
    assert pool.modes == [mode]


def test_a_call_without_rows_is_handed_on():
    pool = Recording()
    Waiting(Unfused(pool), a_call(Mode.LOSS, num_rows=0)).reply()
    assert pool.modes == [Mode.LOSS]


@pytest.mark.parametrize("failing", [Mode.FORWARD, Mode.GRADIENT])
def test_whichever_half_fails_the_call_fails_once(failing):
    waiting = Waiting(Unfused(Recording(failing)), a_call(Mode.LOSS))
    assert isinstance(waiting.error(), ArithmeticError)
    assert waiting.answers == 1


def test_a_loss_that_cannot_be_taken_fails_the_call():
    call = a_call(Mode.LOSS)
    object.__setattr__(call, "targets", Targets("hinge", call.targets.labels, 1.0))
    assert "loss='hinge'" in str(Waiting(Unfused(Recording()), call).error())


def test_closing_closes_the_pool_inside():
    pool = Recording()
    Unfused(pool).close()
    assert pool.closed


class Held(ThreadsPool):
    """A pool that holds its answers until the test releases them."""

    def __init__(self):
        self.held, self.cancelled = [], []

    def submit(self, call, done, failed):
        self.held.append((call, lambda: ThreadsPool().submit(call, done, failed)))

    def cancel(self, calls):
        self.cancelled += calls


@pytest.mark.parametrize("half", [0, 1])
def test_cancelling_lets_go_of_the_half_that_is_under_way(half):
    inner = Held()
    pool, call = Unfused(inner), a_call(Mode.LOSS)
    Waiting(pool, call)
    for _ in range(half):
        inner.held[-1][1]()
    pool.cancel([call])
    assert inner.cancelled[0] is inner.held[half][0]
    assert len(inner.cancelled) == 1


def test_the_second_half_of_a_call_that_was_cancelled_in_between_is_not_submitted():
    inner = Held()
    pool, call = Unfused(inner), a_call(Mode.LOSS)
    waiting = Waiting(pool, call)
    pool.cancel([call])
    inner.held[0][1]()  # the pool inside was just about to answer
    assert len(inner.held) == 1
    assert not waiting.answered


def test_other_calls_are_cancelled_as_they_are():
    inner = Held()
    pool, call = Unfused(inner), a_call(Mode.FORWARD)
    Waiting(pool, call)
    pool.cancel([call])
    assert inner.cancelled[0] is call
