import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from trained_programs import STEPS, Odd, bits, gradients, optimizer_maker, servers, train

from dorylus.errors import CheckpointError, ConfigError, TrainingError
from dorylus.servers.parameter.parameter_servers import ParameterServers
from dorylus.servers.parameter.stash import Version

MAKERS = {
    "sgd": optimizer_maker(torch.optim.SGD, lr=0.01),
    "momentum": optimizer_maker(torch.optim.SGD, lr=0.01, momentum=0.9),
    "adam": optimizer_maker(torch.optim.Adam),
    "adamw": optimizer_maker(torch.optim.AdamW),
}


def test_pulled_weights_are_leaves_of_a_graph_of_their_own():
    program = Odd()
    pulled = servers(program=program).pull(0, 0)
    assert pulled.keys() == dict(program.named_parameters(remove_duplicate=False)).keys()
    for name, weight in program.named_parameters(remove_duplicate=False):
        assert pulled[name].is_leaf
        assert pulled[name] is not weight
        assert pulled[name].requires_grad is weight.requires_grad
        assert torch.equal(pulled[name], weight)
    pulled["first.weight"].sum().backward()
    assert program.first.weight.grad is None


def test_an_interval_gets_the_same_tensors_all_through_its_epoch():
    group = servers(2, num_intervals=2, update="async")
    train(group, range(1))
    first = group.pull(0, 1)
    group.push(1, 1, 3, {"first.bias": torch.ones(4)})
    group.finish(1, 1)
    again = group.pull(0, 1)
    assert all(again[name] is first[name] for name in first)  # a kept autograd graph ends in these very leaves
    assert not torch.equal(group.pull(0, 2)["first.bias"], first["first.bias"])


def test_an_update_steps_by_the_sum_of_all_gradients():
    group = servers(num_intervals=3)
    before = group.weights()
    for interval, value in enumerate((1.0, 2.0, 4.0)):
        group.push(interval, 0, 5, {"first.bias": torch.full((4,), value)})
    group.push(0, 0, 9, {"first.bias": torch.full((4,), 8.0)})
    for interval in range(3):
        assert bits(group.weights()) == bits(before)
        group.finish(interval, 0)
    assert torch.equal(group.weights()["first.bias"], before["first.bias"] - 15)
    assert torch.equal(group.weights()["first.weight"], before["first.weight"])  # no interval pushed any


def finish(group, interval, epoch, value):
    """An interval's epoch in which every entry of one bias has this gradient; gives the bias after it."""
    group.push(interval, epoch, 5, {"first.bias": torch.full((4,), value)})
    group.finish(interval, epoch)
    return group.weights()["first.bias"]


def test_the_first_asynchronous_step_is_the_synchronous_one():
    one, other = (servers(make_optimizer=MAKERS["adam"], num_intervals=4, update=each) for each in ("sync", "async"))
    before = bits(other.weights())
    for interval in range(4):
        assert bits(other.weights()) == before  # nothing until all have given a gradient
        finish(one, interval, 0, 2.0**interval)
        finish(other, interval, 0, 2.0**interval)
    assert bits(other.weights()) == bits(one.weights()) != before
    assert other.version == 1


def test_later_asynchronous_steps_are_made_at_once_by_the_sum_of_the_newest_gradients():
    group = servers(num_intervals=4, update="async")
    before = group.weights()["first.bias"]
    for interval, value in enumerate((1.0, 2.0, 4.0, 8.0)):
        first = finish(group, interval, 0, value)
    assert torch.allclose(first, before - 15)
    group.push(3, 1, 5, {"first.bias": torch.full((4,), 100.0)})  # not finished, so it does not count
    second = finish(group, 2, 1, 16.0)
    assert torch.allclose(second, first - (1 + 2 + 16 + 8) / 4)  # a quarter of the rate
    third = finish(group, 2, 2, 0.0)
    assert torch.allclose(third, second - (1 + 2 + 0 + 8) / 4)
    assert group.version == 3


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-8, 8)), max_size=12))
def test_asynchronous_weights_follow_the_rule_written_out(arrivals):
    group, epochs, newest = servers(3, num_intervals=3, update="async"), [0, 0, 0], {}
    expected = group.weights()["first.bias"].double()
    for number, (interval, value) in enumerate([(0, 1), (1, 2), (2, 3), *arrivals], 1):
        found = finish(group, interval, epochs[interval], float(value))
        epochs[interval], newest[interval] = epochs[interval] + 1, value
        if number >= 3:
            expected = expected - sum(newest.values()) / (1 if number == 3 else 3)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


OPTIMIZERS_OF_EPOCHS = [
    (torch.optim.SGD, 1e-5),
    (torch.optim.Adam, 1e-2),
    (torch.optim.AdamW, 1e-2),
]


@pytest.mark.parametrize(("cls", "tolerance"), OPTIMIZERS_OF_EPOCHS)
def test_an_epoch_of_asynchronous_steps_moves_about_as_far_as_one_synchronous_step(cls, tolerance):
    moved = {}
    for update in ("sync", "async"):
        group = servers(make_optimizer=optimizer_maker(cls, decay=(0.0, 0.0), lr=0.1), update=update, num_intervals=8)
        biases = [group.weights()["first.bias"]]
        for epoch in range(4):
            for interval in range(8):
                now = finish(group, interval, epoch, 0.25)
            biases.append(now)
        moved[update] = torch.stack(biases).diff(dim=0)
    assert torch.equal(moved["async"][0], moved["sync"][0])
    assert torch.allclose(moved["async"], moved["sync"], rtol=tolerance)


def test_running_means_forget_as_much_in_an_epoch_of_asynchronous_steps_as_in_one_synchronous_step():
    means = {}
    for update in ("sync", "async"):
        maker = optimizer_maker(torch.optim.Adam, decay=(0.0, 0.0), betas=(0.5, 0.9))
        group = servers(make_optimizer=maker, update=update, num_intervals=4)
        for epoch in range(3):
            for interval in range(4):
                finish(group, interval, epoch, 1.0 if epoch == 0 else 0.0)
            if epoch == 0:
                first = group.state().optimizer["state"]["first.bias"]
                assert torch.allclose(first["exp_avg"], torch.full((4,), 0.5 * 4))
        state = group.state().optimizer
        means[update] = state["state"]["first.bias"]
        assert state["groups"]["first.bias"]["betas"] == (0.5, 0.9)
    # The sum keeps ever less of the first epoch's gradient while the intervals replace it one after the other.
    assert torch.allclose(means["sync"]["exp_avg"], torch.full((4,), 0.5 * 4 * 0.5**2))
    beta, mean = 0.5**0.25, 2.0
    for total in (3, 2, 1, 0, 0, 0, 0, 0):
        mean = beta * mean + (1 - beta) * total
    assert torch.allclose(means["async"]["exp_avg"], torch.full((4,), mean))


@pytest.mark.parametrize("maker", MAKERS)
def test_with_one_interval_asynchronous_is_synchronous(maker):
    one, other = (servers(make_optimizer=MAKERS[maker], update=update) for update in ("sync", "async"))
    train(one, range(4), num_intervals=1)
    train(other, range(4), num_intervals=1)
    assert bits(one.weights()) == bits(other.weights())


@pytest.mark.parametrize("update", ["sync", "async"])
@pytest.mark.parametrize("maker", MAKERS)
def test_any_number_of_servers_gives_the_same_weights_to_the_last_bit(maker, update):
    trained = {}
    for number in (1, 2, 3, 5, 11):
        group = servers(number, MAKERS[maker], update=update, num_intervals=2)
        train(group, range(5))
        trained[number] = bits(group.weights())
    assert all(weights == trained[1] for weights in trained.values())
    assert trained[1] != bits(Odd().state_dict())


def test_one_server_agrees_with_torch():
    program, plain = Odd(), Odd()
    maker = MAKERS["adamw"]
    group = servers(1, maker, program, num_intervals=2)
    train(group, range(3))
    optimizer = maker(list(plain.named_parameters()))
    parameters = dict(plain.named_parameters(remove_duplicate=False))
    for epoch in range(3):
        optimizer.zero_grad()
        for step in STEPS:
            first, second = (gradients(epoch, step, interval) for interval in range(2))
            for name in first:
                before = parameters[name].grad
                total = first[name] + second[name]
                parameters[name].grad = total if before is None else before + total
        optimizer.step()
    assert bits(program.state_dict()) == bits(plain.state_dict())


@pytest.mark.parametrize("number", [1, 2, 3, 5, 11])
def test_replicas_agree_in_version_and_bits_after_every_update(number):
    group = servers(number, MAKERS["adam"], num_intervals=2)
    for epoch in range(3):
        train(group, [epoch])
        assert {server.version for server in group.servers} == {epoch + 1}
        first, *others = (bits(server.latest) for server in group.servers)
        assert all(other == first for other in others)
    group.load(Odd().state_dict())
    first, *others = (bits(server.latest) for server in group.servers)
    assert all(other == first == bits(Odd().state_dict()) for other in others)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_traffic_between_servers_is_counted(number):
    group = servers(number, num_intervals=2)
    assert group.traffic == 0
    trained = 4 * (4 * 30 + 4 + 4 * 4 + 4 + 1)  # bytes of all but the frozen one; a shared one is sent once
    train(group, range(3))
    assert group.traffic == 3 * (number - 1) * trained


def test_the_programs_own_parameters_hold_the_latest_weights():
    program = Odd()
    group = servers(3, program=program, num_intervals=2)
    train(group, range(2))
    assert bits(program.state_dict()) == bits(group.weights()) == bits(group.latest())
    assert program.third.weight is program.second.weight
    assert all(parameter.grad is None for parameter in program.parameters())


@pytest.mark.parametrize("read", [ParameterServers.latest, ParameterServers.weights, lambda group: group.pull(1, 0)])
def test_weights_that_were_read_do_not_change(read):
    group = servers(2, num_intervals=2)
    found = read(group)
    before = bits(found)
    train(group, range(2))
    group.load({name: torch.zeros_like(weight) for name, weight in group.weights().items()})
    assert bits(found) == before
    assert bits(group.latest()) != before


def test_a_copy_of_the_weights_may_be_written_to():
    group = servers()
    before = bits(group.latest())
    for weight in group.weights().values():
        weight.zero_()
    assert bits(group.latest()) == before


def test_frozen_parameters_are_shared_between_versions():
    group = servers(num_intervals=2)
    before = group.latest()
    train(group, range(1))
    assert group.latest()["second.bias"] is before["second.bias"]
    assert group.latest()["first.bias"] is not before["first.bias"]


def test_every_update_and_every_load_has_the_next_version_number():
    for update, versions in (("sync", [1, 2, 3, 4]), ("async", [1, 3, 5, 6])):
        group = servers(2, num_intervals=2, update=update)
        found = []
        for epoch in range(3):
            train(group, [epoch])
            found.append(group.version)
        group.load(group.weights())
        assert [*found, group.version] == versions


def test_loaded_weights_are_the_ones_pulled_next_and_the_optimiser_state_is_unchanged():
    group = servers(2, MAKERS["momentum"], num_intervals=2)
    train(group, range(2))
    before, pinned = group.state(), group.pull(0, 2)
    group.load({"first.bias": torch.tensor([3.0, 4.0, 5.0, 6.0])})
    assert group.pull(1, 2)["first.bias"].tolist() == [3, 4, 5, 6]
    assert group.pull(0, 2) is pinned
    after = group.state()
    assert torch.equal(after.weights["first.weight"], before.weights["first.weight"])
    momentum = [each.optimizer["state"]["first.bias"]["momentum_buffer"] for each in (before, after)]
    assert torch.equal(*momentum)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"first.bia": torch.ones(4)}, "unknown parameter 'first.bia'.*Did you mean 'first.bias'"),
        ({"first.bias": torch.ones(1)}, r"their first.bias is \[1\], and this model's is \[4\]"),
    ],
)
def test_weights_of_another_model_are_refused_and_change_nothing(weights, message):
    group = servers()
    before = bits(group.latest())
    with pytest.raises(CheckpointError, match=message):
        group.load({"scale": torch.tensor(9.0)} | weights)
    assert bits(group.latest()) == before


def test_pins_are_spread_over_the_servers_and_released_by_the_weight_update():
    group = servers(3, num_intervals=5)
    for interval in range(5):
        group.pull(interval, 0)
        group.pull(interval, 0)
    assert group.stash_sizes == [2, 2, 1]
    group.finish(0, 0)
    assert group.stash_sizes == [1, 2, 1]
    for interval in range(1, 5):
        group.finish(interval, 0)
    assert group.stash_sizes == [0, 0, 0]
    assert (group.max_stash, group.max_versions) == (5, 1)


def test_asynchronous_updates_stash_a_version_for_each_interval_in_flight():
    group = servers(2, num_intervals=3, update="async")
    train(group, range(1), num_intervals=3)
    for interval in range(3):
        group.pull(interval, 1)
        group.finish(interval, 1)
        group.pull(interval, 2)
    assert (group.max_stash, group.max_versions) == (3, 3)
    held = set().union(*(server.stash.versions() for server in group.servers))
    assert held == {Version(2), Version(3), Version(4)}


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("maker", ["momentum", "adam"])
def test_an_interval_ahead_of_the_updates_gets_weights_predicted_from_momentum(maker, number):
    group = servers(number, make_optimizer=MAKERS[maker], num_intervals=2)
    train(group, range(2))
    before = group.weights()
    train(group, range(2, 3))
    latest = group.weights()
    group.finish(0, 3)
    group.finish(0, 4)
    for epoch, repeated in ((4, 0.9), (5, 0.9 + 0.81)):
        pulled = group.pull(0 if epoch == 5 else 1, epoch)
        for name, weight in pulled.items():
            expected = latest[name] + repeated * (latest[name] - before[name])
            assert torch.allclose(weight, expected, rtol=1e-5, atol=1e-6)
            assert weight.is_leaf
        assert pulled["second.weight"] is not pulled["third.weight"]
        assert not torch.equal(pulled["first.weight"], latest["first.weight"])
        assert torch.equal(pulled["second.bias"], latest["second.bias"])  # frozen


def test_an_interval_ahead_of_updates_without_momentum_gets_the_latest_weights():
    group = servers(num_intervals=2)
    train(group, range(2))
    group.finish(0, 2)
    assert all(weight is group.latest()[name] for name, weight in group.pull(0, 3).items())


def test_loaded_weights_are_not_predicted():
    group = servers(make_optimizer=MAKERS["adam"], num_intervals=2)
    train(group, range(2))
    group.load({name: weight + 1 for name, weight in group.weights().items()})
    group.finish(0, 2)
    assert all(weight is group.latest()[name] for name, weight in group.pull(0, 3).items())


def test_an_interval_that_is_not_ahead_gets_weights_without_prediction():
    group = servers(make_optimizer=MAKERS["adam"], num_intervals=2)
    for epoch in range(5, 8):  # as after a resume: epochs need not start at 0
        latest = group.latest()
        for interval in range(2):
            assert all(weight is latest[name] for name, weight in group.pull(interval, epoch).items())
        train(group, [epoch])


def test_late_gradients_are_as_good_as_timely_ones_where_momentum_predicts_the_weights():
    """Every gradient is an epoch late, of a loss whose minimum is where the first bias is zero."""

    def end(late, momentum):
        maker = optimizer_maker(torch.optim.SGD, decay=(0.0, 0.0), lr=0.05, momentum=momentum)
        group = servers(make_optimizer=maker, num_intervals=2)
        for epoch in range(60):
            for interval in range(2):
                early = group.pull(interval, epoch)["first.bias"].detach()
                if late:
                    group.pull(interval, epoch + 1)
                group.push(interval, epoch, 5, {"first.bias": early})
            for interval in range(2):
                group.finish(interval, epoch)
        return group.weights()["first.bias"].abs().max().item()

    timely, late = end(late=False, momentum=0.9), end(late=True, momentum=0.9)
    assert timely < 0.02
    assert late < 2 * timely


@pytest.mark.parametrize("update", ["sync", "async"])
def test_a_pin_is_released_even_when_the_optimiser_fails(update):
    class Failing(torch.optim.SGD):
        def step(self, closure=None):
            raise RuntimeError("no step today")

    group = servers(2, lambda named: Failing([p for _, p in named], lr=1.0), update=update)  # one interval: step due
    group.pull(0, 0)
    with pytest.raises(RuntimeError, match="no step today"):
        group.finish(0, 0)
    assert (group.stash_sizes, group.version) == ([0, 0], 0)


@pytest.mark.parametrize("update", ["sync", "async"])
def test_an_interval_that_has_finished_is_refused(update):
    group = servers(num_intervals=2, update=update)
    group.push(0, 0, 3, {})
    with pytest.raises(TrainingError, match="interval 0 pushes the gradients of step 3 of epoch 0 a second time"):
        group.push(0, 0, 3, {})
    group.finish(0, 0)
    for late in (lambda: group.push(0, 0, 5, {}), lambda: group.finish(0, 0), lambda: group.pull(0, 0)):
        with pytest.raises(TrainingError, match="interval 0 called for epoch 0, which it has finished"):
            late()


def test_asynchronous_updates_become_synchronous_between_epochs():
    group = servers(2, num_intervals=3, update="async")
    train(group, range(2), num_intervals=3)
    assert group.version == 1 + 3
    group.synchronise()
    train(group, range(2, 4), num_intervals=3)
    assert group.version == 6
    with pytest.raises(TrainingError, match="called for epoch 1, which it has finished"):
        group.push(0, 1, 3, {})
    group.restore(group.state())
    train(group, range(4, 5), num_intervals=3)
    assert group.version == 8  # one for the restored weights, one for the epoch


def test_updates_do_not_become_synchronous_in_the_middle_of_an_epoch():
    group = servers(num_intervals=2, update="async")
    train(group, range(1))
    group.pull(1, 1)
    group.finish(0, 1)
    with pytest.raises(TrainingError, match="epoch 1 is in progress: let every interval finish it first"):
        group.synchronise()
    group.finish(1, 1)
    assert group.version == 3


def test_weights_without_an_optimiser_only_serve():
    group = ParameterServers(Odd(), 2)
    assert bits(group.latest()) == bits(group.pull(0, 0)) == bits(Odd().state_dict())
    for change in (lambda: group.push(0, 0, 0, {}), lambda: group.finish(0, 0)):
        with pytest.raises(
            TrainingError, match="these weights are only served: give the parameter servers an optimiser"
        ):
            change()
    group.end_epoch(1.0)
    group.load({"scale": torch.tensor(9.0)})
    assert group.latest()["scale"].item() == 9


def test_slices_hold_whole_parameters_and_keep_shared_ones_together():
    made = []

    def make(named):
        made.append([name for name, _ in named])
        return torch.optim.SGD([parameter for _, parameter in named], lr=1.0)

    servers(3, make)
    assert made == [["first.weight"], ["second.weight"], ["scale", "first.bias", "second.bias", "third.bias"]]


def test_a_server_without_parameters_has_neither_optimiser_nor_schedule():
    schedules = []

    def make_schedule(optimizer):
        schedules.append(torch.optim.lr_scheduler.StepLR(optimizer, 1))
        return schedules[-1]

    group = servers(8, make_schedule=make_schedule)
    assert [server.optimizer is None for server in group.servers] == [False] * 6 + [True] * 2
    assert len(schedules) == 6
    train(group, range(2), num_intervals=1)
    assert {schedule.last_epoch for schedule in schedules} == {2}


def test_an_optimiser_made_of_more_than_its_slice_is_refused():
    program = nn.Linear(2, 2)
    with pytest.raises(ConfigError, match="SGD holds parameters it was not given"):
        ParameterServers(program, 2, make_optimizer=lambda _: torch.optim.SGD(program.parameters(), lr=1.0))


def test_there_is_at_least_one_server():
    with pytest.raises(ConfigError, match=r"num_servers=0: .*use 1 or more"):
        ParameterServers(Odd(), 0)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.integers(1, 3))
def test_the_stash_holds_exactly_the_intervals_in_flight(moves, number):
    """Three intervals run on, each at its own pace: pull, push, finish, next epoch."""
    group = servers(number, num_intervals=3, update="async")
    at = dict.fromkeys(range(3), (0, 0))  # interval: (epoch, moves made in it)
    used = {}
    for interval in moves:
        epoch, made = at[interval]
        if made == 0:
            used[interval] = bits(group.pull(interval, epoch))
        elif made == 1:
            group.push(interval, epoch, 3, {"first.bias": torch.ones(4)})
            assert bits(group.pull(interval, epoch)) == used[interval]
        else:
            group.finish(interval, epoch)
        at[interval] = (epoch, made + 1) if made < 2 else (epoch + 1, 0)
        assert sum(group.stash_sizes) == sum(made > 0 for _, made in at.values())
        assert max(group.stash_sizes) - min(group.stash_sizes) <= 3
    assert group.version == max(0, sum(epoch for epoch, _ in at.values()) - 2)  # the first three make one update
