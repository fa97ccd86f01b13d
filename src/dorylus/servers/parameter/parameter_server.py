"""One parameter server: a replica of all the weights, a slice of them to step, and a stash of versions in use.

A version is immutable: an optimiser steps the program's own parameters, and what readers get are copies made when the
step is done. Nothing here is locked; :class:`dorylus.servers.parameter.parameter_servers.ParameterServers` is.

What weights an interval uses that runs ahead of the updates: the latest ones, moved on by what momentum will repeat.

An optimiser's state by the names of its parameters, so that it outlives the way they are cut into slices.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from dorylus.errors import CheckpointError, ConfigError, TrainingError
from dorylus.servers.parameter.stash import Stash
from dorylus.servers.parameter.updates import Update

Weights = Mapping[str, Tensor]
Momenta = Mapping[str, float]


def move_ahead(before: Weights, latest: Weights, momenta: Momenta, steps: int) -> dict[str, Tensor]:
    """The latest weights after what momentum repeats in ``steps`` more steps of the one that led there from ``before``.

    Gives leaves of an autograd graph, for the parameters that have a momentum and were stepped.
    """
    moved = {}
    for name, momentum in momenta.items():
        weight = latest[name]
        if momentum and weight is not before[name]:
            # Not by sum(), which adds floats in another way from Python 3.12 on.
            repeated = reduce(add, (momentum**step for step in range(1, steps + 1)), 0.0)
            guess = torch.lerp(before[name].detach(), weight.detach(), 1 + repeated)
            moved[name] = guess.requires_grad_(weight.requires_grad)
    return moved


def momentum_of(group: Mapping[str, Any]) -> float:
    """The momentum of an optimiser's parameter group, under the names torch's optimisers give it; 0 for none."""
    return float(group.get("momentum") or group.get("betas", (0.0,))[0])


_NOT_HYPERPARAMETERS = ("params", "param_names")
Names = Mapping[nn.Parameter, str]


def group_names(optimizer: Optimizer, names: Names) -> list[list[str]]:
    """The names of the parameters in each of an optimiser's groups."""
    return [[names[parameter] for parameter in group["params"]] for group in optimizer.param_groups]


def state_by_name(optimizer: Optimizer, names: Names) -> dict[str, dict[str, Any]]:
    """A copy of an optimiser's state: {"state": {name: ...}, "groups": {name: ...}}."""
    packed = optimizer.state_dict()
    state, groups = {}, {}
    for group, its in zip(packed["param_groups"], group_names(optimizer, names), strict=True):
        hyperparameters = {key: value for key, value in group.items() if key not in _NOT_HYPERPARAMETERS}
        for number, name in zip(group["params"], its, strict=True):
            groups[name] = deepcopy(hyperparameters)
            if number in packed["state"]:
                state[name] = deepcopy(packed["state"][number])
    _refuse_more(optimizer, packed, len(state))
    return {"state": state, "groups": groups}


def load_by_name(
    optimizer: Optimizer, names: Names, saved: Mapping[str, Mapping[str, Any]], elsewhere: Sequence[str | None]
) -> None:
    """Give an optimiser what was saved of its parameters, leaving ``saved`` alone.

    ``elsewhere`` names for each group a parameter that is in it on some server: where the group is empty here, it
    takes that one's hyperparameters, for a learning-rate schedule looks at all groups.
    """
    packed = optimizer.state_dict()
    state, groups = {}, []
    for group, its, other in zip(packed["param_groups"], group_names(optimizer, names), elsewhere, strict=True):
        first = its[0] if its else other
        hyperparameters = {} if first is None else deepcopy(saved["groups"][first])
        for number, name in zip(group["params"], its, strict=True):
            if saved["groups"][name] != hyperparameters:
                raise CheckpointError(
                    f"the parameters {first} and {name} were saved with different hyperparameters, but are in one "
                    "group of this optimiser: make the optimiser, and its weight_decay, as the run had them."
                )
            if name in saved["state"]:
                state[number] = deepcopy(saved["state"][name])
        groups.append(group | hyperparameters)
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _refuse_more(optimizer: Optimizer, packed: Mapping[str, Any], found: int) -> None:
    if set(packed) != {"state", "param_groups"} or len(packed["state"]) != found:
        raise CheckpointError(
            f"{type(optimizer).__name__} keeps state that belongs to no parameter, which a checkpoint cannot hold: use "
            "an optimiser that keeps its state by parameter, or train without a run folder."
        )


Aliases = Mapping[str, Sequence[str]]
LARGEST_NORM = math.sqrt(torch.finfo(torch.float32).max)  # of a parameter whose sum of squares does not overflow


class ParameterServer:
    """One server of a group; without an optimiser it only serves.

    ``owned`` is its slice of the program's parameters; ``aliases`` has, for every parameter of the program, all the
    names under which layers share it.
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
        self.latest: Weights = {}
        self.stash: Stash[Weights] = Stash()
        self._before: Weights = {}  # the version before the latest
        self._momenta: Momenta = {}  # of the step between them
        self._ahead: dict[int, Weights] = {}
        self._aliases = aliases
        self._names = {parameter: name for name, parameter in self.owned.items()}
        if optimizer is not None:
            self._check_own(optimizer)

    def receive(self, version: int, values: Weights, momenta: Momenta | None = None) -> None:
        """Hold a new version: these values, and the ones there were of the parameters not among them.

        ``momenta`` are those of the step that gave the values; without them they come from no step.
        """
        self.version, self._before, self.latest = version, self.latest, {**self.latest, **self._under_all_names(values)}
        self._momenta, self._ahead = momenta or {}, {}

    def ahead(self, steps: int) -> Weights:
        """The latest version, moved on by what is known of the next ``steps`` updates; see :func:`move_ahead`."""
        if not steps or not any(self._momenta.values()):
            return self.latest
        if steps not in self._ahead:
            moved = move_ahead(self._before, self.latest, self._momenta, steps)
            self._ahead[steps] = {**self.latest, **self._under_all_names(moved)}
        return self._ahead[steps]

    def step(self, update: Update) -> Weights:
        """WU on its slice; gives the new values. Parameters that are frozen, or have no gradient, are left out."""
        if self.optimizer is None:
            return {}
        for name, parameter in self.owned.items():
            parameter.grad = update.grads.get(name) if parameter.requires_grad else None
        try:
            with _part_of_an_epoch(self.optimizer, update.parts):
                self.optimizer.step()
        finally:
            for parameter in self.owned.values():
                parameter.grad = None
        return {name: published(each) for name, each in self.owned.items() if each.requires_grad}

    def exploded(self) -> str | None:
        """What of its slice has left the range of float32, as the end of a sentence; None where nothing has.

        A weight may be at most so large that the sum of squares of its parameter is finite: the products that a layer
        forms of larger ones overflow. What the optimiser keeps has to be finite.
        """
        kept = [each for state in self._optimizer_state().values() for each in state.values() if _is_floating(each)]
        norm = torch.nn.utils.get_total_norm([*(each.detach() for each in self.owned.values()), *kept])
        return None if norm <= LARGEST_NORM else self._first_exploded()

    def _first_exploded(self) -> str | None:
        """The same by looking at every tensor by itself: all of them together may overflow where none does."""
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
        """How much of its last step the optimiser repeats in the next, for each parameter it steps."""
        groups = [] if self.optimizer is None else self.optimizer.param_groups
        return {self._names[each]: momentum_of(group) for group in groups for each in group["params"]}

    def end_epoch(self, loss: float) -> None:
        """Move the learning-rate schedule on; ``loss`` is what a schedule that watches a plateau looks at."""
        try:
            if isinstance(self.schedule, ReduceLROnPlateau):
                self.schedule.step(loss)
            elif self.schedule is not None:
                self.schedule.step()
        except Exception as error:  # a schedule may refuse its options only when it is used
            raise TrainingError(
                f"the schedule {type(self.schedule).__name__} failed: {error}. "
                "Mend lr_schedule_options and train again."
            ) from error

    def group_names(self) -> list[list[str]]:
        """The names of the parameters in each of its optimiser's groups."""
        return [] if self.optimizer is None else group_names(self.optimizer, self._names)

    def optimizer_state(self) -> dict[str, dict[str, Any]]:
        """A copy of its optimiser's state, by parameter name."""
        return {"state": {}, "groups": {}} if self.optimizer is None else state_by_name(self.optimizer, self._names)

    def load_optimizer(self, saved: Mapping[str, Mapping[str, Any]], elsewhere: Sequence[str | None]) -> None:
        """Take its slice's part of the state of all optimisers; see :func:`load_by_name`."""
        if self.optimizer is not None:
            load_by_name(self.optimizer, self._names, saved, elsewhere[: len(self.optimizer.param_groups)])

    def _under_all_names(self, values: Weights) -> dict[str, Tensor]:
        """These values with a leaf for each name of theirs, or gradients would be counted twice."""
        under = dict(values)
        for name, value in values.items():
            for alias in self._aliases[name][1:]:
                under[alias] = value.detach().requires_grad_(value.requires_grad)
        return under

    def _check_own(self, optimizer: Optimizer) -> None:
        if any(parameter not in self._names for group in optimizer.param_groups for parameter in group["params"]):
            raise ConfigError(
                f"{type(optimizer).__name__} holds parameters it was not given: each parameter server steps its own "
                "slice. Make the optimiser from the parameter groups that the callable is called with."
            )


def published(parameter: nn.Parameter) -> Tensor:
    """A parameter's value as readers get it: a copy that stays, a leaf of an autograd graph."""
    return parameter.detach().clone().requires_grad_(parameter.requires_grad)


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


@contextmanager
def _part_of_an_epoch(optimizer: Optimizer, parts: int) -> Iterator[None]:
    """For a while, what is meant for a whole epoch is meant for one of so many parts of it.

    Learning rates are divided; running means (``betas``) forget as much in so many steps as they did in one. Steps are
    counted in epochs between updates and in parts of them during one, as the means' bias is corrected by their number.
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
