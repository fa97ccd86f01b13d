import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dorylus.servers import ParameterServer


def model():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    net[1].bias.requires_grad_(False)
    return net


def server(net=None, lr=1.0):
    net = net or model()
    return ParameterServer(net, torch.optim.SGD(net.parameters(), lr=lr))


def gradients(steps, intervals, seed=0):
    """{(step, interval): gradients of some of the weights}, of very different sizes."""
    torch.manual_seed(seed)
    shapes = {"0.weight": (2, 3), "0.bias": (2,), "1.weight": (2, 2)}
    return {
        (step, interval): {
            name: torch.randn(shape) * 10 ** random.Random(f"{step} {interval}").uniform(-6, 6)
            for name, shape in shapes.items()
            if name != "1.weight" or step % 2
        }
        for step in range(steps)
        for interval in range(intervals)
    }


@given(st.integers(1, 4), st.integers(1, 6), st.randoms(use_true_random=False))
def test_the_step_is_the_same_to_the_last_bit_whatever_order_gradients_arrive_in(steps, intervals, shuffler):
    parts = gradients(steps, intervals)
    in_order, shuffled = server(), server()
    for (step, interval), grads in parts.items():
        in_order.push(step, interval, grads)
    arrivals = list(parts)
    shuffler.shuffle(arrivals)
    for step, interval in arrivals:
        shuffled.push(step, interval, parts[step, interval])
    in_order.update()
    shuffled.update()
    for name, weight in in_order.weights().items():
        assert torch.equal(weight, shuffled.weights()[name]), name


def test_an_update_steps_by_the_sum_of_all_gradients():
    net = model()
    ours = server(net)
    before = ours.weights()
    for interval, value in enumerate((1.0, 2.0, 4.0)):
        ours.push(5, interval, {"0.bias": torch.full((2,), value)})
    ours.push(9, 0, {"0.bias": torch.full((2,), 8.0)})
    ours.update()
    assert torch.equal(ours.weights()["0.bias"], before["0.bias"] - 15)
    assert torch.equal(ours.weights()["0.weight"], before["0.weight"])  # nobody pushed any


def test_an_update_forgets_what_it_has_used():
    ours = server()
    ours.push(0, 0, {"0.bias": torch.ones(2)})
    ours.update()
    before = ours.weights()
    ours.update()
    assert torch.equal(ours.weights()["0.bias"], before["0.bias"])


def test_gradients_that_were_pushed_are_not_written_to():
    grad, other = torch.ones(2), torch.ones(2)
    ours = server()
    ours.push(0, 0, {"0.bias": grad})
    ours.push(0, 1, {"0.bias": other})
    ours.update()
    assert grad.tolist() == other.tolist() == [1, 1]


def test_every_update_has_the_next_version_number():
    ours = server()
    assert ours.version == 0
    ours.update()
    ours.update()
    assert ours.version == 2
    ours.load(ours.weights(), 7)
    assert ours.version == 7


def test_pulled_weights_are_leaves_of_a_graph_of_their_own():
    net = model()
    pulled = server(net).pull()
    assert pulled.keys() == dict(net.named_parameters()).keys()
    for name, weight in net.named_parameters():
        assert pulled[name].is_leaf
        assert pulled[name] is not weight
        assert pulled[name].requires_grad is weight.requires_grad
        assert torch.equal(pulled[name], weight)
    pulled["0.weight"].sum().backward()
    assert net[0].weight.grad is None


def test_a_version_is_pulled_once_and_for_all():
    ours = server()
    first = ours.pull()
    assert ours.pull() is first
    ours.push(0, 0, {"0.bias": torch.ones(2)})
    ours.update()
    assert ours.pull() is not first
    assert torch.equal(ours.pull()["0.bias"], ours.weights()["0.bias"])


def test_copied_weights_do_not_change_with_the_next_update():
    ours = server()
    copy = ours.weights()
    ours.push(0, 0, {"0.bias": torch.ones(2)})
    ours.update()
    assert not torch.equal(copy["0.bias"], ours.weights()["0.bias"])


def test_loaded_weights_are_the_ones_pulled_next():
    ours = server()
    ours.pull()
    ours.load({"0.bias": torch.tensor([3.0, 4.0])}, 1)
    assert ours.pull()["0.bias"].tolist() == [3, 4]


def test_a_server_without_an_optimiser_only_serves():
    ours = ParameterServer(model())
    assert set(ours.pull()) == set(ours.weights())
    with pytest.raises(AssertionError):
        ours.update()
