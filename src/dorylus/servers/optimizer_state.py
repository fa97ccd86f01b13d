"""An optimiser's state by the names of its parameters, so that it outlives the way they are cut into slices.

``torch`` numbers parameters in the order an optimiser holds them; here ``state`` has a table for each parameter's name
and ``groups`` the hyperparameters of the group it is in.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from torch import nn
from torch.optim import Optimizer

from dorylus.errors import CheckpointError

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
