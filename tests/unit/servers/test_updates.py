import itertools
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dorylus.errors import ConfigError, TrainingError
from dorylus.servers.parameter.updates import GradientLedger, make_updates

NAMES = {"w": "w", "b": "b", "tied": "w"}


def gradients(steps, intervals, epochs=1):
    """{(epoch, step, interval): gradients of some of the weights}, of very different sizes."""
    torch.manual_seed(0)
    return {
        (epoch, step, interval): {
            name: torch.randn(3) * 10 ** random.Random(f"{epoch} {step} {interval}").uniform(-6, 6)
            for name in NAMES
            if name != "tied" or step % 2
        }
        for epoch in range(epochs)
        for step in range(steps)
        for interval in range(intervals)
    }


def pushed(parts, intervals, shuffler=None):
    """The synchronous updates of gradients that are pushed in some order, each interval finishing when it can."""
    updates, due = make_updates("sync", GradientLedger(intervals), NAMES), []
    arrivals = sorted(parts, key=lambda part: part[0] if shuffler is None else (part[0], shuffler.random()))
    left = [(epoch, interval) for epoch, _, interval in arrivals]
    for epoch, step, interval in arrivals:
        updates.push(interval, epoch, step, parts[epoch, step, interval])
        left.remove((epoch, interval))
        if (epoch, interval) not in left:
            due += updates.finish(interval, epoch)
    return due


def assert_same_bits(found, expected):
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 2), st.randoms(use_true_random=False))
def test_the_sum_is_the_same_to_the_last_bit_whatever_order_gradients_arrive_in(steps, intervals, epochs, shuffler):
    parts = gradients(steps, intervals, epochs)
    in_order, shuffled = pushed(parts, intervals), pushed(parts, intervals, shuffler)
    assert len(in_order) == len(shuffled) == epochs
    for one, other in zip(in_order, shuffled, strict=True):
        assert_same_bits(other.grads, one.grads)


def test_a_synchronous_update_is_the_sum_over_steps_and_intervals():
    updates = make_updates("sync", GradientLedger(3), NAMES)
    for interval, value in enumerate((1.0, 2.0, 4.0)):
        updates.push(interval, 0, 5, {"b": torch.full((2,), value)})
    updates.push(0, 0, 9, {"b": torch.full((2,), 8.0), "w": torch.ones(1)})
    assert updates.finish(2, 0) == updates.finish(0, 0) == []
    [update] = updates.finish(1, 0)
    assert update.grads["b"].tolist() == [15, 15]
    assert update.grads["w"].tolist() == [1]
    assert update.parts == 1


def test_only_gradients_before_their_turn_are_held_back():
    updates = make_updates("sync", GradientLedger(4), NAMES)
    for interval in (0, 2, 3):
        updates.push(interval, 0, 7, {"b": torch.ones(1)})
    assert sorted(updates._sums[0][7].waiting) == [2, 3]
    updates.push(1, 0, 7, {})
    assert not updates._sums[0][7].waiting


def test_an_interval_that_does_not_push_blocks_no_other():
    updates = make_updates("sync", GradientLedger(3), NAMES)
    updates.push(2, 0, 0, {"b": torch.tensor([4.0])})
    updates.push(0, 0, 0, {"b": torch.tensor([1.0])})
    due = [update for interval in range(3) for update in updates.finish(interval, 0)]
    assert [update.grads["b"].tolist() for update in due] == [[5.0]]


def test_the_next_epochs_gradients_may_come_before_this_one_is_closed():
    updates = make_updates("sync", GradientLedger(2), NAMES)
    updates.push(0, 0, 0, {"b": torch.tensor([1.0])})
    assert updates.finish(0, 0) == []
    updates.push(0, 1, 0, {"b": torch.tensor([10.0])})
    updates.push(1, 0, 0, {"b": torch.tensor([2.0])})
    [first] = updates.finish(1, 0)
    updates.push(1, 1, 0, {"b": torch.tensor([20.0])})
    assert updates.finish(1, 1) == []
    [second] = updates.finish(0, 1)
    assert (first.grads["b"].item(), second.grads["b"].item()) == (3, 30)


def test_a_parameter_of_two_names_has_one_gradient():
    for update in ("sync", "async"):
        updates = make_updates(update, GradientLedger(1), NAMES)
        updates.push(0, 0, 0, {"w": torch.tensor([1.0]), "tied": torch.tensor([2.0])})
        updates.push(0, 0, 1, {"tied": torch.tensor([4.0])})
        [due] = updates.finish(0, 0)
        assert {name: grad.tolist() for name, grad in due.grads.items()} == {"w": [7.0]}


def finished(updates, interval, epoch, grads):
    """The updates due when an interval pushes these gradients and finishes."""
    updates.push(interval, epoch, 0, grads)
    return updates.finish(interval, epoch)


def plain_rule(arrivals, num_intervals):
    """The asynchronous rule written out in float64: [(parts, {name: sum of every interval's newest})]."""
    newest, due = {}, []
    for number, (interval, grads) in enumerate(arrivals, 1):
        newest[interval] = grads
        if number < num_intervals:
            continue
        names = {name for table in newest.values() for name in table}
        tables = [{name: table[name].double() for name in table} for table in newest.values()]
        sums = {name: sum(table[name] for table in tables if name in table) for name in names}
        due.append((1 if number == num_intervals else num_intervals, sums))
    return due


@given(st.integers(1, 5), st.integers(0, 25), st.randoms(use_true_random=False))
def test_an_asynchronous_update_is_the_sum_of_every_intervals_newest_gradient(intervals, more, order):
    updates, epochs = make_updates("async", GradientLedger(intervals), NAMES), [0] * intervals
    chosen = [*order.sample(range(intervals), intervals), *(order.randrange(intervals) for _ in range(more))]
    arrivals, due = [], []
    for interval in chosen:
        names = [name for name in ("b", "w") if order.random() < 0.8]
        grads = {name: torch.tensor([order.uniform(-1, 1) for _ in range(3)]) for name in names}
        arrivals.append((interval, grads))
        due += finished(updates, interval, epochs[interval], grads)
        epochs[interval] += 1
    expected = plain_rule(arrivals, intervals)
    assert [update.parts for update in due] == [parts for parts, _ in expected]
    for update, (_, sums) in zip(due, expected, strict=True):
        present = {name for name, total in sums.items() if total.any()}
        assert present <= update.grads.keys() <= {"b", "w"}
        for name, grad in update.grads.items():  # one that was taken out again may be left at zero
            torch.testing.assert_close(grad.double(), sums.get(name, torch.zeros(3).double()), rtol=0, atol=1e-5)


def test_the_first_gradients_of_all_intervals_make_one_synchronous_update():
    updates = make_updates("async", GradientLedger(3), NAMES)
    assert finished(updates, 2, 0, {"b": torch.tensor([1.0])}) == []
    assert finished(updates, 0, 0, {"b": torch.tensor([2.0]), "w": torch.tensor([0.5])}) == []
    [update] = finished(updates, 1, 0, {"b": torch.tensor([4.0])})
    assert {name: grad.tolist() for name, grad in update.grads.items()} == {"b": [7.0], "w": [0.5]}
    assert update.parts == 1


def test_later_gradients_of_an_interval_replace_its_own_and_step_at_once():
    updates = make_updates("async", GradientLedger(3), NAMES)
    for interval, value in enumerate((1.0, 2.0, 4.0)):
        finished(updates, interval, 0, {"b": torch.tensor([value])})
    updates.push(2, 1, 3, {"b": torch.tensor([100.0])})  # not finished: not yet in the sum
    updates.push(0, 1, 3, {"b": torch.tensor([8.0])})
    updates.push(0, 1, 5, {"b": torch.tensor([16.0]), "w": torch.tensor([0.5])})
    [update] = updates.finish(0, 1)
    assert {name: grad.tolist() for name, grad in update.grads.items()} == {"b": [30.0], "w": [0.5]}
    assert update.parts == 3
    [update] = finished(updates, 0, 2, {"b": torch.tensor([1.0])})  # the same interval again, ahead of the others
    assert {name: grad.tolist() for name, grad in update.grads.items()} == {"b": [7.0], "w": [0.0]}


def test_the_first_asynchronous_update_has_the_bits_of_the_synchronous_one_whatever_the_order():
    parts = {interval: torch.randn(3, generator=torch.Generator().manual_seed(interval)) for interval in range(6)}
    found = []
    for update, order in (("sync", range(6)), ("async", range(6)), ("async", [3, 0, 5, 1, 4, 2])):
        updates = make_updates(update, GradientLedger(6), NAMES)
        found += [due for interval in order for due in finished(updates, interval, 0, {"b": parts[interval]})]
    assert [update.parts for update in found] == [1, 1, 1]
    assert_same_bits(found[1].grads, found[0].grads)
    assert_same_bits(found[2].grads, found[0].grads)


def test_rounding_does_not_pile_up_in_the_running_sum():
    intervals, updates = 4, make_updates("async", GradientLedger(4), NAMES)
    generator, newest = torch.Generator().manual_seed(0), {}
    for epoch in range(200):
        size = 1e6 if epoch < 199 else 1e-3  # after large gradients, tiny ones
        for interval in range(intervals):
            newest[interval] = size * torch.rand(8, generator=generator)
            due = finished(updates, interval, epoch, {"b": newest[interval]})
    [update] = due
    expected = sum(grad.double() for grad in newest.values())
    assert (update.grads["b"].double() - expected).abs().max() < 1e-6


def test_no_more_than_one_gradient_an_interval_is_kept():
    updates = make_updates("async", GradientLedger(3), NAMES)
    for epoch in range(10):
        for interval in range(3):
            finished(updates, interval, epoch, {"b": torch.ones(1)})
    assert len(updates._newest) == 3
    assert not updates._pushed


@pytest.mark.parametrize("update", ["sync", "async"])
def test_gradients_that_were_pushed_are_not_written_to(update):
    updates, due = make_updates(update, GradientLedger(2), NAMES), []
    parts = {(*at,): torch.ones(2) for at in itertools.product(range(3), range(2), range(2))}
    for epoch, interval in itertools.product(range(3), range(2)):
        for step in range(2):
            grad = parts[epoch, interval, step]
            updates.push(interval, epoch, step, {"b": grad, "tied": grad, "w": grad})
        due += updates.finish(interval, epoch)
    assert len(due) == (3 if update == "sync" else 5)
    assert all(grad.tolist() == [1, 1] for grad in parts.values())
    for each in due:  # nor are they what an update holds
        for grad in each.grads.values():
            grad.zero_()
    assert all(grad.tolist() == [1, 1] for grad in parts.values())


@pytest.mark.parametrize("update", ["sync", "async"])
def test_each_task_pushes_once_and_each_interval_finishes_once(update):
    updates = make_updates(update, GradientLedger(2), NAMES)
    updates.push(0, 0, 0, {})
    with pytest.raises(TrainingError, match="a second time"):
        updates.push(0, 0, 0, {})
    updates.finish(0, 0)
    for late in (lambda: updates.push(0, 0, 1, {}), lambda: updates.finish(0, 0)):
        with pytest.raises(TrainingError, match="which it has finished"):
            late()


@pytest.mark.parametrize("update", ["sync", "async"])
def test_a_gradient_of_an_unknown_parameter_is_refused(update):
    with pytest.raises(TrainingError, match=r"gradient was pushed for an unknown parameter 'ww'.*Did you mean 'w'"):
        make_updates(update, GradientLedger(1), NAMES).push(0, 0, 0, {"ww": torch.ones(1)})


def test_an_unknown_update_mode_is_refused():
    with pytest.raises(ConfigError, match=r"unknown weight update 'asink': the known ones are async, sync"):
        make_updates("asink", GradientLedger(1), NAMES)


def test_an_optimiser_that_writes_to_its_gradients_does_not_write_to_the_sum():
    updates, found = make_updates("async", GradientLedger(2), {"w": "w"}), []
    for epoch, value in enumerate((1.0, 3.0)):
        for interval in range(2):
            updates.push(interval, epoch, 0, {"w": torch.tensor(value)})
            for update in updates.finish(interval, epoch):
                found.append(update.grads["w"].item())
                update.grads["w"].zero_()
    assert found == [2.0, 4.0, 6.0]
