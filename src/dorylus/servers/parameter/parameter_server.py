"""One parameter server: a copy of the weights, the slice of them that it steps, and a stash of versions in use.

A version is immutable: an optimiser steps the program's own parameters, and readers receive copies made after the step.
An interval that runs ahead of the updates receives predicted weights: the latest ones, plus what momentum will repeat
of the last step. Nothing here is locked; :class:`dorylus.servers.parameter.parameter_servers.ParameterServers` is.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from dorylus.errors import ConfigError, TrainingError, given
from dorylus.servers.parameter.stash import Stash
from dorylus.servers.parameter.state import group_names, load_by_name, state_by_name
from dorylus.servers.parameter.updates import Update

WeightsByName = Mapping[str, Tensor]
Momenta = Mapping[str, float]
Aliases = Mapping[str, Sequence[str]]
LARGEST_NORM = math.sqrt(torch.finfo(torch.float32).max)  # of a parameter whose sum of squares is finite


class ParameterServer:
    """One parameter server; without an optimiser it only serves weights.

    ``owned`` is its slice of the program's parameters. ``aliases`` lists, for every parameter of the program, the names
    under which layers share it.
    """

    def __init__(
        self,
        owned: Mapping[str, nn.Parameter],
        aliases: Aliases,
        optimizer: Optimizer | None = None,
        schedule: LRScheduler | None = None,
    ) -> None:
        self.owned, self.optimizer, self.schedule = dict(owned), optimizer, schedule
        self.version = 0
        self.latest: WeightsByName = {}
        self.stash: Stash[WeightsByName] = Stash()
        self._previous: WeightsByName = {}  # the version before the latest
        self._momenta: Momenta = {}  # of the step between them
        self._predicted: dict[int, WeightsByName] = {}  # by the number of updates ahead
        self._aliases = aliases
        self._names = {parameter: name for name, parameter in self.owned.items()}
        if optimizer is not None:
            self._check_own(optimizer)

    def receive(self, version: int, values: WeightsByName, momenta: Momenta | None = None) -> None:
        """Hold a new version: these values, and the former values of all other parameters.

        ``momenta`` are those of the optimiser step that computed the values; None if no step did.
        """
        self.version, self._previous = version, self.latest
        self.latest = {**self.latest, **self._under_all_names(values)}
        self._momenta, self._predicted = momenta or {}, {}

    def predicted(self, steps: int) -> WeightsByName:
        """The weights predicted for ``steps`` updates after the latest version; see :func:`predict_weights`."""
        if not steps or not any(self._momenta.values()):
            return self.latest
        if steps not in self._predicted:
            values = predict_weights(self._previous, self.latest, self._momenta, steps)
            self._predicted[steps] = {**self.latest, **self._under_all_names(values)}
        return self._predicted[steps]

    def step(self, update: Update) -> WeightsByName:
        """WU on its slice; returns the new values. Parameters that are frozen, or have no gradient, are left out."""
        if self.optimizer is None:
            return {}
        for name, parameter in self.owned.items():
            parameter.grad = update.grads.get(name) if parameter.requires_grad else None
        try:
            with _scaled_to_part(self.optimizer, update.parts):
                self.optimizer.step()
        finally:
            for parameter in self.owned.values():
                parameter.grad = None
        return {name: published(each) for name, each in self.owned.items() if each.requires_grad}

    def overflowed(self) -> str | None:
        """The first value of its slice that has left the range of float32, as the end of a sentence; None if none has.

        The sum of squares of a parameter must be finite: products of larger weights overflow in a layer. Optimiser
        state must be finite.
        """
        kept = [each for state in self._optimizer_state().values() for each in state.values() if _is_floating(each)]
        norm = torch.nn.utils.get_total_norm([*(each.detach() for each in self.owned.values()), *kept])
        return None if norm <= LARGEST_NORM else self._first_overflowed()

    def _first_overflowed(self) -> str | None:
        """The same, checking each tensor separately: the norm of all together may overflow where that of none does."""
        for name, parameter in self.owned.items():
            values = parameter.detach()
            if not math.isfinite(torch.linalg.vector_norm(values).square()):
                finite = torch.isfinite(values).all()
                return f"{name} is {'so large that the sum of its squares overflows' if finite else 'not finite'}"
        for stepped, state in self._optimizer_state().items():
            for name, each in state.items():
                if _is_floating(each) and not torch.isfinite(each).all():
                    return f"{name}, which the optimiser keeps for {self._names[stepped]}, is not finite"
        return None

    def _optimizer_state(self) -> Mapping[Any, Mapping[str, Any]]:
        return {} if self.optimizer is None else self.optimizer.state

    def momenta(self) -> dict[str, float]:
        """The momentum of each parameter it steps: the part of the last step that the optimiser repeats in the next."""
        groups = [] if self.optimizer is None else self.optimizer.param_groups
        return {self._names[each]: momentum_of(group) for group in groups for each in group["params"]}

    def end_epoch(self, loss: float) -> None:
        """Step the learning-rate schedule; ``loss`` is for schedules that react to a plateau."""
        try:
            if isinstance(self.schedule, ReduceLROnPlateau):
                self.schedule.step(loss)
            elif self.schedule is not None:
                self.schedule.step()
        except Exception as error:  # some schedules refuse their options only when they are used
            raise TrainingError(
                f"the schedule {type(self.schedule).__name__} failed: {error}. "
                f"Correct {given('lr_schedule_options')} and train again."
            ) from error

    def group_names(self) -> list[list[str]]:
        """The names of the parameters in each of its optimiser's groups."""
        return [] if self.optimizer is None else group_names(self.optimizer, self._names)

    def optimizer_state(self) -> dict[str, dict[str, Any]]:
        """A copy of its optimiser's state, by parameter name."""
        return {"state": {}, "groups": {}} if self.optimizer is None else state_by_name(self.optimizer, self._names)

    def load_optimizer(self, saved: Mapping[str, Mapping[str, Any]], examples: Sequence[str | None]) -> None:
        """Load its slice's part of the state of all optimisers; see :func:`load_by_name`."""
        if self.optimizer is not None:
            load_by_name(self.optimizer, self._names, saved, examples[: len(self.optimizer.param_groups)])

    def _under_all_names(self, values: WeightsByName) -> dict[str, Tensor]:
        """These values under all their names, a leaf for each: with a shared leaf gradients would be counted twice."""
        named = dict(values)
        for name, value in values.items():
            for alias in self._aliases[name][1:]:
                named[alias] = value.detach().requires_grad_(value.requires_grad)
        return named

    def _check_own(self, optimizer: Optimizer) -> None:
        if any(parameter not in self._names for group in optimizer.param_groups for parameter in group["params"]):
            raise ConfigError(
                f"{type(optimizer).__name__} holds parameters it was not given: each parameter server steps its own "
                "slice. Make the optimiser from the parameter groups that the callable is called with."
            )


def predict_weights(previous: WeightsByName, latest: WeightsByName, momenta: Momenta, steps: int) -> dict[str, Tensor]:
    """The latest weights plus what momentum repeats, in ``steps`` further steps, of the step from ``previous`` to them.

    Returns leaves of an autograd graph, for the parameters that have a momentum and were stepped.
    """
    predicted = {}
    for name, momentum in momenta.items():
        weight = latest[name]
        if momentum and weight is not previous[name]:
            # Not by sum(), which adds floats differently from Python 3.12 on.
            repeated = reduce(add, (momentum**step for step in range(1, steps + 1)), 0.0)
            value = torch.lerp(previous[name].detach(), weight.detach(), 1 + repeated)
            predicted[name] = value.requires_grad_(weight.requires_grad)
    return predicted


def momentum_of(group: Mapping[str, Any]) -> float:
    """The momentum of an optimiser's parameter group, under either name that torch's optimisers use; 0 if none."""
    return float(group.get("momentum") or group.get("betas", (0.0,))[0])


def published(parameter: nn.Parameter) -> Tensor:
    """A parameter's value as readers receive it: a copy, and a leaf of an autograd graph."""
    return parameter.detach().clone().requires_grad_(parameter.requires_grad)


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


@contextmanager
def _scaled_to_part(optimizer: Optimizer, parts: int) -> Iterator[None]:
    """Within the context, the optimiser's step is one of ``parts`` that together make the step of an epoch.

    Learning rates are divided by ``parts``; running means (``betas``) decay as much in ``parts`` steps as otherwise in
    one. The optimiser's step count, by which the bias of the means is corrected, counts epochs outside the context and
    parts of epochs inside it.
    """
    scaled = ("lr", "betas")
    groups = optimizer.param_groups if parts != 1 else []
    before = [{name: group[name] for name in group if name in scaled} for group in groups]
    for group in groups:
        if "lr" in group:
            group["lr"] = group["lr"] / parts
        if "betas" in group:
            group["betas"] = tuple(beta ** (1 / parts) for beta in group["betas"])
    _count_steps(optimizer, groups, parts)
    try:
        yield
    finally:
        _count_steps(optimizer, groups, 1 / parts)
        for group, values in zip(groups, before, strict=True):
            group.update(values)


def _count_steps(optimizer: Optimizer, groups: Sequence[dict[str, Any]], factor: float) -> None:
    for group in groups:
        for parameter in group["params"] if "betas" in group else ():
            state = optimizer.state.get(parameter, {})
            if "step" in state:
                state["step"] = state["step"] * factor
