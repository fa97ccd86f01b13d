from dataclasses import replace

import pytest
import torch
from torch.optim import lr_scheduler
from trained_programs import Odd, bits, optimizer_maker, servers, train

from dorylus.errors import CheckpointError
from dorylus.servers.parameter.parameter_servers import ParameterServers

OPTIMIZERS = {
    "sgd": optimizer_maker(torch.optim.SGD, lr=0.01),
    "momentum": optimizer_maker(torch.optim.SGD, lr=0.01, momentum=0.9, nesterov=True),
    "adam": optimizer_maker(torch.optim.Adam, amsgrad=True),
    "adamw": optimizer_maker(torch.optim.AdamW),
    "rmsprop": optimizer_maker(torch.optim.RMSprop, momentum=0.5, centered=True),
}
SCHEDULES = {
    "step": lambda o: lr_scheduler.StepLR(o, 2, gamma=0.3),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=7),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0, min_lr=[1e-3, 1e-2]),
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=[0.1, 0.05], total_steps=12),
    "by_group": lambda o: lr_scheduler.LambdaLR(o, [lambda e: 0.5**e, lambda e: 1 / (1 + e)]),
}


def group(num_servers, optimizer="adam", schedule="step", update="sync"):
    make_schedule = SCHEDULES.get(schedule)
    return servers(num_servers, OPTIMIZERS[optimizer], make_schedule=make_schedule, update=update, num_intervals=2)


def same(one, other):
    """Whether two states are equal to the last bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


def assert_near(one, other):
    """Two states are equal to rounding: gradients are summed in another order."""
    torch.testing.assert_close(one.weights, other.weights, rtol=1e-4, atol=1e-4)
    assert one.optimizer["groups"] == other.optimizer["groups"]
    ours, theirs = (each.optimizer["state"] for each in (one, other))
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(tensors(ours[name]), tensors(theirs[name]), rtol=1e-4, atol=1e-2)


def tensors(table):
    return {name: value for name, value in table.items() if isinstance(value, torch.Tensor)}


def assert_continues_alike(saved_on, restored_on, **how):
    whole = group(1, **how)
    train(whole, range(8))
    first, second = group(saved_on, **how), group(restored_on, **how)
    train(first, range(3))
    second.restore(first.state())
    train(second, range(3, 6))
    third = group(saved_on, **how)
    third.restore(second.state())
    train(third, range(6, 8))
    assert bits(third.weights()) == bits(whole.weights())
    for part in ("weights", "optimizer", "lr_schedule"):
        assert same(getattr(third.state(), part), getattr(whole.state(), part)), part


@pytest.mark.parametrize("saved_on", [1, 2, 3])
@pytest.mark.parametrize("restored_on", [1, 5, 9])
def test_a_run_continues_bit_for_bit_on_another_number_of_servers_and_back(saved_on, restored_on):
    assert_continues_alike(saved_on, restored_on)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_run_continues_bit_for_bit_with_every_optimiser(optimizer):
    assert_continues_alike(3, 1, optimizer=optimizer)


@pytest.mark.parametrize("saved_on", [1, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_asynchronous_run_restored_from_one_state_continues_alike_on_any_number_of_servers(optimizer, saved_on):
    first = group(saved_on, optimizer, update="async")
    train(first, range(3))
    state, found = first.state(), []
    for number in (1, 3, saved_on):
        fresh = group(number, optimizer, update="async")
        fresh.restore(state)
        train(fresh, range(3, 6))
        found.append(fresh)
    used = group(saved_on, optimizer, update="async")
    train(used, range(2))  # what it has done before is forgotten
    used.restore(state)
    train(used, range(3, 6))
    for other in (*found[1:], used):
        assert bits(other.weights()) == bits(found[0].weights()) != bits(state.weights)
        for part in ("optimizer", "lr_schedule"):
            assert same(getattr(other.state(), part), getattr(found[0].state(), part)), part


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_after_a_restore_the_first_epoch_is_synchronous(optimizer, number):
    first = group(1, optimizer, update="async")
    train(first, range(3))
    exact, ours = group(number, optimizer), group(number, optimizer, update="async")
    for each in (exact, ours):
        each.restore(first.state())
    version = ours.version
    train(exact, [3])
    train(ours, [3])
    assert ours.version == version + 1
    assert_near(ours.state(), exact.state())
    train(ours, [4])
    assert ours.version == version + 3  # and then there is one update an interval again


@pytest.mark.parametrize("schedule", [*SCHEDULES, None])
def test_a_run_continues_bit_for_bit_with_every_schedule(schedule):
    assert_continues_alike(3, 1, schedule=schedule)


def test_a_state_is_a_copy():
    ours = group(3)
    train(ours, range(2))
    state, again = ours.state(), ours.state()
    train(ours, range(2, 4))
    assert same(state.weights, again.weights)
    assert same(state.optimizer, again.optimizer)
    assert same(state.lr_schedule, again.lr_schedule)
    assert not same(state.lr_schedule, ours.state().lr_schedule)
    assert bits(state.weights) != bits(ours.weights())


def test_two_groups_restored_from_one_state_are_independent():
    ours, one, other = group(1), group(1), group(2)
    train(ours, range(2))
    state = ours.state()
    one.restore(state)
    train(one, range(2, 5))
    other.restore(state)
    train(other, range(2, 5))
    assert bits(one.weights()) == bits(other.weights())


def test_restoring_forgets_the_epochs_in_progress():
    ours = group(2)
    train(ours, range(3))
    ours.pull(0, 3)
    ours.push(0, 3, 3, {"scale": torch.tensor(1e6)})
    state = ours.state()
    ours.restore(state)
    assert ours.stash_sizes == [0, 0]
    train(ours, range(3, 5))  # the same tasks again: nothing of the first attempt counts
    other = group(1)
    other.restore(state)
    train(other, range(3, 5))
    assert bits(ours.weights()) == bits(other.weights())


def test_weights_that_only_serve_take_only_the_weights():
    ours, serving = group(3), ParameterServers(Odd())
    train(ours, range(2))
    serving.restore(ours.state())
    assert bits(serving.weights()) == bits(ours.weights())
    assert serving.state().optimizer == {"state": {}, "groups": {}}


def without(table, name):
    return {key: value for key, value in table.items() if key != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: replace(s, weights=s.weights | {"fourth": torch.ones(1)}),
            "unknown parameter 'fourth': the known ones are first.bias",
        ),
        (lambda s: replace(s, weights=s.weights | {"scale": torch.ones(1)}), r"their scale is \[1\].*model's is \[\]"),
        (lambda s: replace(s, weights=without(s.weights, "scale")), "the saved state lacks the parameter scale"),
        (
            lambda s: replace(s, optimizer=s.optimizer | {"groups": s.optimizer["groups"] | {"fourth": {}}}),
            "the optimiser's state has the parameter fourth, which is not among this model's",
        ),
        (
            lambda s: replace(s, optimizer=s.optimizer | {"groups": without(s.optimizer["groups"], "scale")}),
            "the optimiser's state lacks the parameter scale",
        ),
        (lambda s: replace(s, lr_schedule=None), "saved with no learning-rate schedule, and here is one"),
    ],
)
def test_a_state_of_something_else_is_refused_and_changes_nothing(change, message):
    ours, other = group(3), group(2)
    train(other, range(2))
    before, version = bits(ours.weights()), ours.version
    with pytest.raises(CheckpointError, match=message):
        ours.restore(change(other.state()))
    assert (bits(ours.weights()), ours.version) == (before, version)


def test_a_state_with_a_schedule_is_refused_where_there_is_none():
    ours, other = group(1, schedule=None), group(1)
    with pytest.raises(CheckpointError, match="saved with one learning-rate schedule, and here is none: give lr_sched"):
        ours.restore(other.state())
