import torch
from torch import nn

from dorylus.servers.parameter.parameter_server import ParameterServer
from dorylus.servers.parameter.parameter_servers import Pins


def servers(number):
    made = [ParameterServer({}, {"w": ["w"]}) for _ in range(number)]
    publish(made, 0)
    return made


def publish(made, version):
    for each in made:
        each.receive(version, {"w": nn.Parameter(torch.full((1,), float(version)))})


def test_an_interval_is_pinned_where_there_are_fewest_pins():
    made = servers(3)
    pins = Pins(made)
    for interval in range(5):
        pins.pin(interval, 0)
    assert [len(each.stash) for each in made] == [2, 2, 1]
    pins.release(0, 0)
    pins.release(3, 0)
    pins.pin(5, 0)
    assert [len(each.stash) for each in made] == [1, 2, 1]


def test_an_interval_keeps_the_version_it_met():
    made = servers(2)
    pins = Pins(made)
    pins.pin(0, 0)
    publish(made, 1)
    pins.pin(0, 1)
    assert pins.pinned(0, 0)[1]["w"].item() == 0
    assert pins.pinned(0, 1)[1]["w"].item() == 1
    assert (0, 0) in pins
    assert (1, 0) not in pins


def test_the_most_pins_and_versions_there_ever_were_are_remembered():
    made = servers(2)
    pins = Pins(made)
    for version, interval in enumerate((0, 1, 2)):
        publish(made, version)
        pins.pin(interval, 0)
        pins.pin(interval, 1)
    pins.clear()
    pins.pin(9, 0)
    assert (pins.most, pins.most_versions) == (6, 3)


def test_pins_of_one_version_on_many_servers_are_one_version():
    pins = Pins(servers(3))
    for interval in range(3):
        pins.pin(interval, 0)
    assert (pins.most, pins.most_versions) == (3, 1)


def test_a_version_that_was_never_pinned_may_be_released():
    made = servers(1)
    pins = Pins(made)
    pins.pin(0, 0)
    pins.release(1, 0)
    assert [len(each.stash) for each in made] == [1]
