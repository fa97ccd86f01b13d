"""Optimiser and learning-rate schedule of a run, made from its settings.

Separate from the settings because this needs torch. Any class of ``torch.optim`` and ``torch.optim.lr_scheduler`` that
can be made from plain options is known by name, in any case; the others are given as callables.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from dorylus.config import RunConfig
from dorylus.errors import ConfigError, given, kind_of, short_repr, unknown_name, unknown_value

NamedParameters = Iterable[tuple[str, torch.nn.Parameter]]
Expected = TypeVar("Expected", Optimizer, LRScheduler)
OptimizerFactory = Callable[..., Optimizer]
ScheduleFactory = Callable[[Optimizer], LRScheduler]

# LBFGS evaluates the loss several times a step; SparseAdam takes sparse gradients only.
_UNFIT_OPTIMIZERS = {"Optimizer", "LBFGS", "SparseAdam"}
# These are made from functions or other schedules, which no settings file can hold.
_UNFIT_SCHEDULES = {"LRScheduler", "LambdaLR", "MultiplicativeLR", "SequentialLR", "ChainedScheduler"}


def make_optimizer(
    config: RunConfig,
    named_parameters: NamedParameters,
    factory: OptimizerFactory | None = None,
    names: Iterable[str] | None = None,
) -> Optimizer:
    """The optimiser of a run, or of one slice of its parameters, with one parameter group for each weight decay.

    ``factory`` stands in for ``config.optimizer``: an optimiser class is made as a named one would be; any other
    callable gets the parameter groups alone and sets its own learning rate. ``names`` are all the program's, where
    ``named_parameters`` are a slice: every slice has the same groups, some of them empty, so that schedules see no
    difference between one parameter server and many.
    """
    named = list(named_parameters)
    groups = _decay_groups(config.weight_decay, named, [name for name, _ in named] if names is None else list(names))
    if factory is not None:
        _check_factory("optimizer", factory, Optimizer)
    if factory is not None and not isinstance(factory, type):
        return _checked("optimizer", factory(_without_default_decay(config, groups)), Optimizer)
    cls: Any = factory or _by_name("optimizer", config.optimizer, _classes(torch.optim, Optimizer, _UNFIT_OPTIMIZERS))
    if "weight_decay" not in inspect.signature(cls).parameters:
        if any(group["weight_decay"] for group in groups):
            raise ConfigError(
                f"{given('weight_decay', config.weight_decay)}, but {cls.__name__} has no weight decay: use "
                f"{given('weight_decay', 0)}, or another {given('optimizer')} such as 'adam'."
            )
        groups = [{"params": group["params"]} for group in groups]
    options = {name: tuple(v) if isinstance(v, list) else v for name, v in config.optimizer_options.items()}
    _refuse_doubles(cls.__name__, options)
    optimizer: Optimizer = _made(cls, "optimizer_options", groups, lr=config.lr, **options)
    return optimizer


def make_lr_schedule(
    config: RunConfig, optimizer: Optimizer, factory: ScheduleFactory | None = None
) -> LRScheduler | None:
    """The learning-rate schedule of a run, or None where the settings name none."""
    if factory is not None:
        _check_factory("lr_schedule", factory, LRScheduler)
        return _checked("lr_schedule", factory(optimizer), LRScheduler)
    if config.lr_schedule is None:
        return None
    cls = _by_name("lr_schedule", config.lr_schedule, _classes(lr_scheduler, LRScheduler, _UNFIT_SCHEDULES))
    schedule: LRScheduler = _made(cls, "lr_schedule_options", optimizer, **config.lr_schedule_options)
    return schedule


def _check_factory(setting: str, factory: object, parent: type) -> None:
    """Refuse an object that cannot make an optimiser or a schedule."""
    fits = issubclass(factory, parent) if isinstance(factory, type) else callable(factory)
    if isinstance(factory, parent):
        name = type(factory).__name__
        raise ConfigError(
            f"{given(setting)} is {kind_of(factory)} that is made already, of other parameters than the model's: give "
            f"its name, {name!r}, or the class."
        )
    if not fits:
        example = "adam" if parent is Optimizer else "StepLR"
        raise ConfigError(
            f"{given(setting, factory)}, which makes no torch {parent.__name__}: give the name of one, such as "
            f"{example!r}, its class, or a function that returns one."
        )


def _checked(setting: str, made: object, parent: type[Expected]) -> Expected:
    """What a user's callable made; refuses anything but an optimiser or a schedule."""
    if not isinstance(made, parent):
        raise ConfigError(
            f"the callable given as {given(setting)} returned {short_repr(made)}, which is no torch "
            f"{parent.__name__}: return one."
        )
    return made


def _decay_groups(
    decay: float | Mapping[str, float], named: list[tuple[str, torch.nn.Parameter]], names: list[str]
) -> list[dict[str, Any]]:
    """The named parameters in groups, one for each decay, in the order in which the decays appear among all names."""
    patterns = decay if isinstance(decay, Mapping) else {"*": decay}
    for pattern in patterns:
        if names and not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(
                f"{given('weight_decay')} has the pattern {pattern!r}, but " + unknown_name("parameter", pattern, names)
            )
    decays = {
        name: next((each for pattern, each in patterns.items() if fnmatchcase(name, pattern)), 0.0) for name in names
    }
    groups: dict[float, list[torch.nn.Parameter]] = {value: [] for value in decays.values()}
    for name, parameter in named:
        groups[decays[name]].append(parameter)
    return [{"params": parameters, "weight_decay": value} for value, parameters in groups.items()]


def _without_default_decay(config: RunConfig, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups for a user's callable, whose own weight decay counts where the settings have none."""
    if config.weight_decay:
        return groups
    return [{"params": group["params"]} for group in groups]


def _classes(module: ModuleType, parent: type, unfit: set[str]) -> dict[str, type]:
    return {
        name: cls
        for name, cls in vars(module).items()
        if isinstance(cls, type) and issubclass(cls, parent) and name not in unfit and not name.startswith("_")
    }


def _by_name(setting: str, name: str, classes: Mapping[str, type]) -> Any:
    folded = {each.lower(): cls for each, cls in classes.items()}
    cls = folded.get(name.lower().replace("_", ""))
    if cls is None:
        known = [each.lower() for each in classes] if setting == "optimizer" else list(classes)
        raise ConfigError(unknown_value(setting, name, known))
    return cls


def _refuse_doubles(optimizer: str, options: Mapping[str, Any]) -> None:
    for name in ("lr", "weight_decay", "params"):
        if name in options:
            cure = "leave it out" if name == "params" else f"use {given(name, options[name])}"
            what = "are the weights of the model" if name == "params" else "is a setting"
            raise ConfigError(f"{given('optimizer_options')} has {name!r}, but {name} of {optimizer} {what}: {cure}.")


def _made(cls: Any, setting: str, *arguments: Any, **options: Any) -> Any:
    """An instance; an option that torch refuses is a ConfigError."""
    try:
        return cls(*arguments, **options)
    except Exception as error:  # torch raises many kinds of errors for bad arguments
        takes = [name for name in inspect.signature(cls).parameters if name not in ("params", "optimizer")]
        raise ConfigError(
            f"{cls.__name__} cannot be made: {error}. Mend {given(setting)}; {cls.__name__} takes {', '.join(takes)}."
        ) from error
