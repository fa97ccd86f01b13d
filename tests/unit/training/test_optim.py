import functools
import inspect

import pytest
import torch

from dorylus.config import RunConfig
from dorylus.errors import ConfigError
from dorylus.training.optim import make_lr_schedule, make_optimizer


def named(*names):
    return [(name, torch.nn.Parameter(torch.ones(2, 2))) for name in names]


PARAMETERS = named("conv1.weight", "conv1.bias", "conv2.weight")


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("adam", torch.optim.Adam),
        ("AdamW", torch.optim.AdamW),
        ("SGD", torch.optim.SGD),
        ("rmsprop", torch.optim.RMSprop),
        ("adagrad", torch.optim.Adagrad),
    ],
)
def test_an_optimiser_is_found_by_name_whatever_its_case(name, cls):
    optimizer = make_optimizer(RunConfig(optimizer=name, lr=0.5), PARAMETERS)
    assert type(optimizer) is cls
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_no_weight_decay_means_none_even_for_an_optimiser_whose_default_is_another():
    optimizer = make_optimizer(RunConfig(optimizer="adamw"), PARAMETERS)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.0]


def test_one_weight_decay_makes_one_group():
    optimizer = make_optimizer(RunConfig(weight_decay=5e-4), PARAMETERS)
    assert [(len(group["params"]), group["weight_decay"]) for group in optimizer.param_groups] == [(3, 5e-4)]


def test_patterns_of_parameter_names_make_groups_and_the_first_match_wins():
    decay = {"*.bias": 0.5, "conv1.*": 0.25}
    optimizer = make_optimizer(RunConfig(weight_decay=decay), PARAMETERS)
    assert [(len(group["params"]), group["weight_decay"]) for group in optimizer.param_groups] == [
        (1, 0.25),
        (1, 0.5),
        (1, 0.0),
    ]


def test_a_pattern_that_matches_no_parameter_is_refused():
    with pytest.raises(ConfigError, match=r"pattern 'conv9\.\*'.*conv1\.bias"):
        make_optimizer(RunConfig(weight_decay={"conv9.*": 0.1}), PARAMETERS)


ALL = [name for name, _ in PARAMETERS]


def test_every_slice_of_the_parameters_has_the_same_groups_some_of_them_empty():
    decay = {"*.bias": 0.5, "conv1.*": 0.25}
    slices = [PARAMETERS[:1], PARAMETERS[1:2], PARAMETERS[2:], PARAMETERS[:2]]
    made = [make_optimizer(RunConfig(weight_decay=decay), each, names=ALL) for each in slices]
    assert [[group["weight_decay"] for group in optimizer.param_groups] for optimizer in made] == [[0.25, 0.5, 0.0]] * 4
    sizes = [[len(group["params"]) for group in optimizer.param_groups] for optimizer in made]
    assert sizes == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]


def test_patterns_are_checked_against_all_parameters_not_a_slice():
    config = RunConfig(weight_decay={"conv2.*": 0.5})
    groups = make_optimizer(config, PARAMETERS[:1], names=ALL).param_groups
    assert [(len(group["params"]), group["weight_decay"]) for group in groups] == [(1, 0.0), (0, 0.5)]
    with pytest.raises(ConfigError, match=r"pattern 'conv2\.\*'"):
        make_optimizer(config, PARAMETERS[:1])


NAMED = sorted(cls.__name__ for cls in vars(torch.optim).values() if isinstance(cls, type))


@pytest.mark.parametrize("name", [name for name in NAMED if name not in ("Optimizer", "LBFGS", "SparseAdam")])
def test_every_optimiser_steps_with_an_empty_group(name):
    parameters = named("conv1.weight", "conv1.bias")
    takes_decay = "weight_decay" in inspect.signature(getattr(torch.optim, name)).parameters
    config = RunConfig(optimizer=name, weight_decay={"*.bias": 0.5} if takes_decay else 0.0)
    optimizer = make_optimizer(config, parameters[:1], names=["conv1.weight", "conv1.bias"])
    assert len(optimizer.param_groups) == 1 + takes_decay
    weight = parameters[0][1]
    weight.grad = torch.ones(2, 2)
    optimizer.step()
    assert not torch.equal(weight, torch.ones(2, 2))


def test_lists_among_the_options_are_given_as_tuples():
    optimizer = make_optimizer(RunConfig(optimizer_options={"betas": [0.5, 0.75]}), PARAMETERS)
    assert optimizer.param_groups[0]["betas"] == (0.5, 0.75)


@pytest.mark.parametrize(
    ("settings", "cure"),
    [
        ({"optimizer": "adamm"}, "optimizer='adamm' is unknown.*Did you mean 'adam"),
        ({"optimizer": "lbfgs"}, "optimizer='lbfgs' is unknown"),
        ({"optimizer": "rprop", "weight_decay": 0.1}, "Rprop has no weight decay: use weight_decay=0"),
        ({"optimizer_options": {"momentum": 0.9}}, "Mend optimizer_options; Adam takes lr, betas"),
        ({"optimizer_options": {"betas": [2.0, 0.9]}}, "Invalid beta parameter"),
        ({"optimizer_options": {"lr": 0.1}}, r"lr of Adam is a setting: use lr=0\.1\.$"),
        ({"optimizer_options": {"params": 1}}, "params of Adam are the weights of the model: leave it out"),
    ],
)
def test_an_optimiser_that_cannot_be_made_is_refused_with_the_cure(settings, cure):
    with pytest.raises(ConfigError, match=cure):
        make_optimizer(RunConfig(**settings), PARAMETERS)


def test_an_optimiser_without_weight_decay_is_made_when_none_is_requested():
    assert type(make_optimizer(RunConfig(optimizer="rprop"), PARAMETERS)) is torch.optim.Rprop


def test_an_optimiser_class_is_made_like_a_named_one():
    optimizer = make_optimizer(RunConfig(lr=0.25), PARAMETERS, torch.optim.SGD)
    assert type(optimizer) is torch.optim.SGD
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_a_callable_sets_its_own_learning_rate_and_decay():
    factory = functools.partial(torch.optim.AdamW, lr=0.125, weight_decay=0.5)
    group = make_optimizer(RunConfig(), PARAMETERS, factory).param_groups[0]
    assert (group["lr"], group["weight_decay"]) == (0.125, 0.5)


def test_a_callable_gets_the_requested_decay_groups():
    factory = functools.partial(torch.optim.SGD, lr=0.125)
    groups = make_optimizer(RunConfig(weight_decay={"*.bias": 0.5}), PARAMETERS, factory).param_groups
    assert [group["weight_decay"] for group in groups] == [0.0, 0.5]


def test_no_schedule_is_made_when_none_is_requested():
    config = RunConfig()
    assert make_lr_schedule(config, make_optimizer(config, PARAMETERS)) is None


@pytest.mark.parametrize("name", ["StepLR", "steplr", "step_lr"])
def test_a_schedule_is_found_by_name_and_changes_the_learning_rate(name):
    config = RunConfig(lr=1.0, lr_schedule=name, lr_schedule_options={"step_size": 1, "gamma": 0.5})
    optimizer = make_optimizer(config, PARAMETERS)
    schedule = make_lr_schedule(config, optimizer)
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_a_schedule_may_come_as_a_callable():
    optimizer = make_optimizer(RunConfig(lr=1.0), PARAMETERS)
    schedule = make_lr_schedule(RunConfig(), optimizer, lambda opt: torch.optim.lr_scheduler.LambdaLR(opt, lambda e: 7))
    assert schedule is not None
    assert optimizer.param_groups[0]["lr"] == 7.0


@pytest.mark.parametrize(
    ("name", "options", "cure"),
    [
        ("StepLRR", {}, "Did you mean 'StepLR'"),
        ("LambdaLR", {}, "lr_schedule='LambdaLR' is unknown"),
        ("CosineAnnealingLR", {}, "T_max.*Mend lr_schedule_options"),
    ],
)
def test_a_schedule_that_cannot_be_made_is_refused_with_the_cure(name, options, cure):
    config = RunConfig(lr_schedule=name, lr_schedule_options=options)
    with pytest.raises(ConfigError, match=cure):
        make_lr_schedule(config, make_optimizer(config, PARAMETERS))


@pytest.mark.parametrize("factory", [3, int])
def test_what_makes_no_optimiser_or_schedule_is_refused_with_the_cure(factory):
    with pytest.raises(ConfigError, match=r"optimizer=.* makes no torch Optimizer: .* such as 'adam', its class"):
        make_optimizer(RunConfig(), PARAMETERS, factory)
    with pytest.raises(ConfigError, match=r"lr_schedule=.* makes no torch LRScheduler: .* such as 'StepLR', its class"):
        make_lr_schedule(RunConfig(), make_optimizer(RunConfig(), PARAMETERS), factory)


def test_a_callable_that_returns_no_optimiser_or_schedule_is_refused():
    """Without an optimiser no weight would change, and no error say so."""
    with pytest.raises(ConfigError, match="the callable given as optimizer returned None, which is no torch Optimizer"):
        make_optimizer(RunConfig(), PARAMETERS, lambda groups: None)
    with pytest.raises(ConfigError, match="given as lr_schedule returned 3, which is no torch LRScheduler"):
        make_lr_schedule(RunConfig(), make_optimizer(RunConfig(), PARAMETERS), lambda optimizer: 3)
