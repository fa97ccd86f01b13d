import pytest
import torch
from torch import nn

from dorylus.errors import CheckpointError
from dorylus.servers.parameter.state import group_names, load_by_name, state_by_name


def named(*names):
    return {nn.Parameter(torch.ones(2)): name for name in names}


def stepped(names, cls=torch.optim.Adam, **options):
    """An optimiser of these parameters, all but the last of which have been stepped."""
    optimizer = cls([{"params": list(names)}, {"params": []}], **({"lr": 0.1} | options))
    for parameter in list(names)[:-1]:
        parameter.grad = torch.ones(2)
    optimizer.step()
    return optimizer


def test_state_goes_by_the_parameters_names():
    names = named("b", "a", "still")
    found = state_by_name(stepped(names, betas=(0.5, 0.75)), names)
    assert found["state"].keys() == {"b", "a"}
    assert found["state"]["b"].keys() == {"step", "exp_avg", "exp_avg_sq"}
    assert found["groups"].keys() == {"b", "a", "still"}
    assert found["groups"]["still"]["betas"] == (0.5, 0.75)
    assert "params" not in found["groups"]["still"]


def test_names_given_to_torch_are_left_out_too():
    names = named("a")
    optimizer = torch.optim.SGD([(name, parameter) for parameter, name in names.items()], lr=0.1)
    assert "param_names" not in state_by_name(optimizer, names)["groups"]["a"]


def test_saved_state_does_not_change_with_the_next_step():
    names = named("a", "still")
    optimizer = stepped(names)
    saved = state_by_name(optimizer, names)
    optimizer.step()
    assert saved["state"]["a"]["step"].item() == 1
    assert torch.equal(saved["state"]["a"]["exp_avg"], torch.full((2,), 0.1))


def test_state_is_loaded_by_name_into_other_groups_in_another_order():
    names, others = named("a", "b", "still"), named("still", "b")
    saved = state_by_name(stepped(names, amsgrad=True), names)
    optimizer = torch.optim.Adam([{"params": []}, {"params": list(others)}], lr=7.0)
    load_by_name(optimizer, others, saved, ["a", None])
    assert group_names(optimizer, others) == [[], ["still", "b"]]
    assert [(group["lr"], group["amsgrad"]) for group in optimizer.param_groups] == [(0.1, True)] * 2
    assert state_by_name(optimizer, others)["state"].keys() == {"b"}


def test_loading_does_not_change_the_saved_state():
    names, others = named("a", "still"), named("a", "still")
    saved = state_by_name(stepped(names), names)
    again = stepped(others)
    load_by_name(again, others, saved, ["a", None])
    again.step()
    assert saved["state"]["a"]["step"].item() == 1


def test_a_group_that_is_empty_everywhere_keeps_its_options():
    names = named("a", "still")
    optimizer = stepped(names, lr=0.5)
    load_by_name(optimizer, names, state_by_name(stepped(names), names), ["a", None])
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5]


def test_parameters_saved_from_different_groups_do_not_fit_into_one():
    names = named("a", "b")
    parameters = list(names)
    saved = state_by_name(torch.optim.SGD([{"params": parameters[:1], "lr": 1.0}, {"params": parameters[1:]}]), names)
    with pytest.raises(CheckpointError, match=r"a and b were saved with different hyperparameters.*weight_decay"):
        load_by_name(torch.optim.SGD(parameters), names, saved, ["a"])


class Counting(torch.optim.SGD):
    """Keeps a number that belongs to no parameter."""

    def step(self, closure=None):
        self.state["steps"] = self.state.get("steps", 0) + 1


def test_state_that_belongs_to_no_parameter_is_refused_rather_than_lost():
    names = named("a")
    optimizer = Counting(list(names), lr=0.1)
    assert state_by_name(optimizer, names)["state"] == {}
    optimizer.step()
    with pytest.raises(CheckpointError, match="Counting keeps state that belongs to no parameter"):
        state_by_name(optimizer, names)
