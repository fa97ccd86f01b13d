import pytest
import torch
from torch import nn

from dorylus.errors import ConfigError, TrainingError
from dorylus.servers.parameter.parameter_server import ParameterServer, published
from dorylus.servers.parameter.updates import Update


def parameters():
    torch.manual_seed(0)
    return {name: nn.Parameter(torch.randn(2)) for name in ("w", "b", "frozen")} | {
        "frozen": nn.Parameter(torch.randn(2), requires_grad=False)
    }


ALIASES = {"w": ["w", "tied"], "b": ["b"], "frozen": ["frozen"]}


def server(owned, make=lambda p: torch.optim.SGD(p, lr=1.0), **others):
    made = ParameterServer(owned, ALIASES, make(list(owned.values())), **others)
    made.receive(0, {name: published(each) for name, each in owned.items()})
    return made


def test_a_step_returns_the_new_values_of_trainable_parameters():
    owned = parameters()
    before = {name: each.detach().clone() for name, each in owned.items()}
    values = server(owned).step(Update({"w": torch.ones(2), "b": torch.full((2,), 2.0)}))
    assert values.keys() == {"w", "b"}
    assert torch.equal(values["w"], before["w"] - 1)
    assert torch.equal(values["b"], before["b"] - 2)


def test_new_values_are_copies_that_the_next_step_leaves_alone():
    owned = parameters()
    ours = server(owned)
    first = ours.step(Update({"w": torch.ones(2)}))["w"]
    kept = first.detach().clone()
    ours.step(Update({"w": torch.ones(2)}))
    assert torch.equal(first, kept)
    assert torch.equal(owned["w"], kept - 1)


def test_a_step_leaves_no_gradient_behind():
    owned = parameters()
    server(owned).step(Update({"w": torch.ones(2)}))
    assert all(each.grad is None for each in owned.values())


def test_frozen_parameters_stay_even_when_a_gradient_comes():
    owned = parameters()
    before = owned["frozen"].detach().clone()
    values = server(owned).step(Update({"frozen": torch.ones(2)}))
    assert torch.equal(owned["frozen"], before)
    assert "frozen" not in values


def test_parameters_without_a_gradient_are_left_out_of_the_step():
    owned = parameters()
    before = owned["b"].detach().clone()
    server(owned, lambda p: torch.optim.SGD(p, lr=1.0, weight_decay=0.5)).step(Update({"w": torch.ones(2)}))
    assert torch.equal(owned["b"], before)  # a gradient of zero would have decayed it


def test_received_values_make_a_new_version_and_leave_the_old_one_unchanged():
    ours = server(parameters())
    old = ours.latest
    ours.receive(1, {"b": torch.zeros(2, requires_grad=True)})
    assert (ours.version, ours.latest["b"].tolist()) == (1, [0, 0])
    assert ours.latest["w"] is old["w"]  # what did not change is not copied
    assert old["b"].tolist() != [0, 0]


def test_a_parameter_of_two_names_is_two_leaves_with_one_value():
    ours = server(parameters())
    weight, tied = ours.latest["w"], ours.latest["tied"]
    assert weight is not tied
    assert weight.data_ptr() == tied.data_ptr()
    assert tied.is_leaf
    assert tied.requires_grad
    grads = torch.autograd.grad((2 * weight + 3 * tied).sum(), [weight, tied])
    assert [grad.tolist() for grad in grads] == [[2, 2], [3, 3]]


def test_the_learning_rate_is_divided_for_one_step_and_then_restored():
    owned = parameters()
    ours = server(owned)
    before = owned["w"].detach().clone()
    ours.step(Update({"w": torch.ones(2)}, parts=4))
    assert torch.equal(owned["w"], before - 0.25)
    assert ours.optimizer.param_groups[0]["lr"] == 1.0


def noting(cls):
    """The optimiser; it records what it steps with, and fails where the test requests it."""

    class Noting(cls):
        fails = False

        def step(self, closure=None):
            self.seen = [{name: group.get(name) for name in ("lr", "betas")} for group in self.param_groups]
            if self.fails:
                raise RuntimeError("no step today")
            return super().step(closure)

    return Noting


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("parts", [1, 4])
def test_rates_and_running_means_are_scaled_for_one_step_and_then_restored(parts, fails):
    owned = parameters()
    groups = [
        {"params": [owned["w"]], "lr": 0.5, "betas": (0.9, 0.999)},
        {"params": [owned["b"], owned["frozen"]], "lr": 0.1, "betas": (0.0, 0.5)},
    ]
    ours = ParameterServer(owned, ALIASES, noting(torch.optim.Adam)(groups))
    ours.optimizer.fails = fails
    if fails:
        with pytest.raises(RuntimeError, match="no step today"):
            ours.step(Update({"w": torch.ones(2)}, parts))
    else:
        ours.step(Update({"w": torch.ones(2)}, parts))
    before = [{name: group[name] for name in ("lr", "betas")} for group in groups]
    assert [{name: group[name] for name in ("lr", "betas")} for group in ours.optimizer.param_groups] == before
    for seen, given in zip(ours.optimizer.seen, before, strict=True):
        assert seen["lr"] * parts == pytest.approx(given["lr"])
        assert [beta**parts for beta in seen["betas"]] == pytest.approx(given["betas"])
    assert all(each.grad is None for each in owned.values())


def test_optimisers_without_running_means_are_given_none():
    ours = server(parameters(), lambda p: noting(torch.optim.SGD)(p, lr=1.0, momentum=0.9))
    ours.step(Update({"w": torch.ones(2)}, parts=4))
    assert ours.optimizer.seen == [{"lr": 0.25, "betas": None}]
    assert "betas" not in ours.optimizer.param_groups[0]


def test_an_optimiser_that_fails_keeps_its_learning_rate_and_no_gradients():
    owned = parameters()
    ours = server(owned, lambda p: noting(torch.optim.SGD)(p, lr=1.0))
    ours.optimizer.fails = True
    with pytest.raises(RuntimeError, match="no step today"):
        ours.step(Update({"w": torch.ones(2)}, parts=4))
    assert (ours.optimizer.seen[0]["lr"], ours.optimizer.param_groups[0]["lr"]) == (0.25, 1.0)
    assert all(each.grad is None for each in owned.values())


def test_an_optimiser_of_other_parameters_is_refused():
    owned = parameters()
    stranger = torch.optim.SGD([*owned.values(), nn.Parameter(torch.ones(1))], lr=1.0)
    with pytest.raises(ConfigError, match=r"SGD holds parameters it was not given.*from the parameter groups"):
        ParameterServer(owned, ALIASES, stranger)


def test_a_server_without_an_optimiser_steps_nothing():
    owned = parameters()
    ours = ParameterServer(owned, ALIASES)
    before = owned["w"].detach().clone()
    assert ours.step(Update({"w": torch.ones(2)})) == {}
    ours.end_epoch(1.0)
    assert torch.equal(owned["w"], before)


@pytest.mark.parametrize(
    ("make", "rates"),
    [
        (lambda o: torch.optim.lr_scheduler.StepLR(o, 2, gamma=0.5), [1.0, 0.5, 0.5]),
        (lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0, factor=0.5), [1.0, 0.5, 0.25]),
    ],
)
def test_an_epochs_end_moves_the_schedule_on(make, rates):
    owned = parameters()
    optimizer = torch.optim.SGD(owned.values(), lr=1.0)
    ours = ParameterServer(owned, ALIASES, optimizer, make(optimizer))
    found = []
    for loss in (1.0, 2.0, 3.0):  # what a plateau sees
        ours.step(Update({"w": torch.ones(2)}))
        ours.end_epoch(loss)
        found.append(optimizer.param_groups[0]["lr"])
    assert found == rates


def test_a_schedule_that_fails_in_use_is_reported_with_the_cure():
    owned = parameters()
    optimizer = torch.optim.SGD(owned.values(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 0)  # nothing is a multiple of none
    ours = ParameterServer(owned, ALIASES, optimizer, schedule)
    ours.step(Update({}))
    with pytest.raises(TrainingError, match=r"the schedule StepLR failed: .*lr_schedule_options"):
        ours.end_epoch(1.0)
