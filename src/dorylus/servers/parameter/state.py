"""The state that a run needs of its parameter servers to continue bit for bit, on any number of them.

Optimiser state is kept by parameter name, so that it does not depend on how the parameters are sliced.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer

from dorylus.errors import CheckpointError, given

if TYPE_CHECKING:
    from dorylus.servers.parameter.parameter_server import ParameterServer

_NOT_HYPERPARAMETERS = ("params", "param_names")
Names = Mapping[nn.Parameter, str]


@dataclass(frozen=True)
class PSState:
    """Weights, and the state of optimisers and learning-rate schedules, independent of the slices.

    ``optimizer`` is ``{"state": {name: ...}, "groups": {name: ...}}``, by the parameters' names. ``lr_schedule`` is
    that of any server: all have the same groups and are stepped together.
    """

    weights: dict[str, Tensor]
    optimizer: dict[str, Any]
    lr_schedule: dict[str, Any] | None


def state_of(servers: Sequence["ParameterServer"], weights: dict[str, Tensor]) -> PSState:
    """A copy of the servers' state, with these weights."""
    parts = [server.optimizer_state() for server in servers]
    optimizer = {what: {k: v for part in parts for k, v in part[what].items()} for what in ("state", "groups")}
    schedules = [server.schedule.state_dict() for server in servers if server.schedule is not None]
    return PSState(weights, optimizer, deepcopy(schedules[0]) if schedules else None)


def join_states(parts: Sequence[PSState]) -> PSState:
    """The state of several servers that hold different parameters, as one."""
    optimizer = {what: {k: v for p in parts for k, v in p.optimizer[what].items()} for what in ("state", "groups")}
    weights = {name: weight for part in parts for name, weight in part.weights.items()}
    return PSState(weights, optimizer, next((p.lr_schedule for p in parts if p.lr_schedule is not None), None))


def state_part(state: PSState, names: Collection[str]) -> PSState:
    """The part of a state that concerns these parameters, given under all their names."""
    optimizer = {what: {k: v for k, v in table.items() if k in names} for what, table in state.optimizer.items()}
    return PSState({k: v for k, v in state.weights.items() if k in names}, optimizer, state.lr_schedule)


def check_state(servers: Sequence["ParameterServer"], state: PSState) -> None:
    """Refuse a state that does not belong to these optimisers and schedules."""
    stepped = [name for server in servers for group in server.group_names() for name in group]
    check_names("the optimiser's state", state.optimizer["groups"], stepped)
    has_schedule = any(server.schedule is not None for server in servers)
    if stepped and has_schedule is not (state.lr_schedule is not None):
        saved, here = ("no", "one") if has_schedule else ("one", "none")
        raise CheckpointError(
            f"the run was saved with {saved} learning-rate schedule, and here is {here}: give "
            f"{given('lr_schedule')} as the run had it."
        )


def load_state(servers: Sequence["ParameterServer"], state: PSState) -> None:
    """Load the saved state into optimisers and schedules; ``state`` is not changed."""
    by_position = zip_longest(*(server.group_names() for server in servers), fillvalue=[])
    examples = [next((name for names in groups for name in names), None) for groups in by_position]
    for server in servers:
        server.load_optimizer(state.optimizer, examples)
        if server.schedule is not None and state.lr_schedule is not None:
            server.schedule.load_state_dict(deepcopy(state.lr_schedule))


def check_names(what: str, saved: Iterable[str], expected: Iterable[str]) -> None:
    """Refuse parameter names that are not those of this model; the error names the first that differs."""
    saved, expected = list(saved), list(expected)
    cure = "Build the model, and its optimiser, that the state was saved with."
    for name in saved:
        if name not in expected:
            raise CheckpointError(f"{what} has the parameter {name}, which is not among this model's. {cure}")
    for name in expected:
        if name not in saved:
            raise CheckpointError(f"{what} lacks the parameter {name} of this model. {cure}")


def group_names(optimizer: Optimizer, names: Names) -> list[list[str]]:
    """The names of the parameters in each of an optimiser's groups."""
    return [[names[parameter] for parameter in group["params"]] for group in optimizer.param_groups]


def state_by_name(optimizer: Optimizer, names: Names) -> dict[str, dict[str, Any]]:
    """A copy of an optimiser's state: {"state": {name: ...}, "groups": {name: ...}}."""
    packed = optimizer.state_dict()
    state, groups = {}, {}
    for group, own_names in zip(packed["param_groups"], group_names(optimizer, names), strict=True):
        hyperparameters = {key: value for key, value in group.items() if key not in _NOT_HYPERPARAMETERS}
        for number, name in zip(group["params"], own_names, strict=True):
            groups[name] = deepcopy(hyperparameters)
            if number in packed["state"]:
                state[name] = deepcopy(packed["state"][number])
    _check_by_parameter(optimizer, packed, len(state))
    return {"state": state, "groups": groups}


def load_by_name(
    optimizer: Optimizer, names: Names, saved: Mapping[str, Mapping[str, Any]], examples: Sequence[str | None]
) -> None:
    """Load the saved state of its parameters into an optimiser; ``saved`` is not changed.

    ``examples`` names for each group a parameter that is in it on some server. A group that is empty here gets the
    hyperparameters of that parameter, because a learning-rate schedule reads those of all groups.
    """
    packed = optimizer.state_dict()
    state, groups = {}, []
    for group, own_names, example in zip(packed["param_groups"], group_names(optimizer, names), examples, strict=True):
        first = own_names[0] if own_names else example
        hyperparameters = {} if first is None else deepcopy(saved["groups"][first])
        for number, name in zip(group["params"], own_names, strict=True):
            if saved["groups"][name] != hyperparameters:
                raise CheckpointError(
                    f"the parameters {first} and {name} were saved with different hyperparameters, but are in one "
                    f"group of this optimiser: make the optimiser, and {given('weight_decay')}, as the run had them."
                )
            if name in saved["state"]:
                state[number] = deepcopy(saved["state"][name])
        groups.append(group | hyperparameters)
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _check_by_parameter(optimizer: Optimizer, packed: Mapping[str, Any], num_stateful: int) -> None:
    if set(packed) != {"state", "param_groups"} or len(packed["state"]) != num_stateful:
        raise CheckpointError(
            f"{type(optimizer).__name__} keeps state that belongs to no parameter, which a checkpoint cannot hold: use "
            "an optimiser that keeps its state by parameter, or train without a run folder."
        )
