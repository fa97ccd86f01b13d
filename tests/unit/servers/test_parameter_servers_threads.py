import threading

import pytest
import torch
from trained_programs import STEPS, Odd, bits, gradients, optimizer_maker, servers, train

ADAM = optimizer_maker(torch.optim.Adam)
WAIT_S = 60


@pytest.mark.parametrize("number", [1, 3])
def test_threads_give_the_same_weights_as_one(number):
    def at_work(interval):
        for epoch in range(15):
            pinned = group.pull(interval, epoch)
            before = bits(pinned)
            for step in STEPS:
                group.push(interval, epoch, step, gradients(epoch, step, interval))
                assert group.pull(interval, epoch) is pinned
            assert bits(pinned) == before
            group.finish(interval, epoch)

    group = servers(number, ADAM, num_intervals=6)
    run_threads(at_work, range(6))
    alone = servers(1, ADAM, num_intervals=6)
    train(alone, range(15), num_intervals=6)
    assert group.version == 15
    assert group.stash_sizes == [0] * number
    assert bits(group.weights()) == bits(alone.weights())


def test_threads_lose_no_asynchronous_update_and_readers_see_whole_versions():
    def finish(interval, epoch):
        group.pull(interval, epoch)
        group.push(interval, epoch, 3, {"first.bias": torch.ones(4), "third.bias": torch.ones(4)})
        group.finish(interval, epoch)

    def at_work(interval):
        for epoch in range(1, 21):
            finish(interval, epoch)
            weights = group.latest()  # both biases began at zero and are on different servers
            assert torch.equal(weights["first.bias"], weights["third.bias"])

    program = Odd()
    with torch.no_grad():
        program.first.bias.zero_()
        program.third.bias.zero_()
    group = servers(6, program=program, num_intervals=6, update="async")
    for interval in range(6):  # the first epoch is synchronous
        finish(interval, 0)
    run_threads(at_work, range(6))
    assert group.version == 1 + 6 * 20
    # Whatever the order, the sum is of as many ones as there are intervals: 6 in the first step, 6 / 6 in each other.
    assert torch.allclose(group.weights()["first.bias"], torch.full((4,), -6.0 - 120.0))


def run_threads(work, arguments):
    """Does the work for each argument on a thread of its own, and raises the first error."""
    errors = []

    def guarded(argument):
        try:
            work(argument)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(argument,), daemon=True) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=WAIT_S)
        assert not thread.is_alive(), "a thread is still at work"
    if errors:
        raise errors[0]
