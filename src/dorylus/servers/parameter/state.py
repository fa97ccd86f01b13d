"""What a run needs of its parameter servers to go on bit for bit, on as many of them as it likes."""

from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from torch import Tensor

from dorylus.errors import CheckpointError
from dorylus.servers.parameter.parameter_server import ParameterServer


@dataclass(frozen=True)
class PSState:
    """Weights, and the state of optimisers and learning-rate schedules, whatever the slices were.

    ``optimizer`` is ``{"state": {name: ...}, "groups": {name: ...}}``, by the parameters' names. ``lr_schedule`` is
    any server's: they all have the same groups, and are stepped together.
    """

    weights: dict[str, Tensor]
    optimizer: dict[str, Any]
    lr_schedule: dict[str, Any] | None


def state_of(servers: Sequence[ParameterServer], weights: dict[str, Tensor]) -> PSState:
    """A copy of the servers' state, with these weights."""
    parts = [server.optimizer_state() for server in servers]
    optimizer = {what: {k: v for part in parts for k, v in part[what].items()} for what in ("state", "groups")}
    schedules = [server.schedule.state_dict() for server in servers if server.schedule is not None]
    return PSState(weights, optimizer, deepcopy(schedules[0]) if schedules else None)


def joined(parts: Sequence[PSState]) -> PSState:
    """One state of those of servers that hold different parameters."""
    optimizer = {what: {k: v for p in parts for k, v in p.optimizer[what].items()} for what in ("state", "groups")}
    weights = {name: weight for part in parts for name, weight in part.weights.items()}
    return PSState(weights, optimizer, next((p.lr_schedule for p in parts if p.lr_schedule is not None), None))


def part_of(state: PSState, names: Collection[str]) -> PSState:
    """What a server that holds only these parameters, under all their names, needs of a state."""
    optimizer = {what: {k: v for k, v in table.items() if k in names} for what, table in state.optimizer.items()}
    return PSState({k: v for k, v in state.weights.items() if k in names}, optimizer, state.lr_schedule)


def check_state(servers: Sequence[ParameterServer], state: PSState) -> None:
    """Refuse a state that is not of these optimisers and schedules."""
    stepped = [name for server in servers for group in server.group_names() for name in group]
    check_names("the optimiser's state", state.optimizer["groups"], stepped)
    has = any(server.schedule is not None for server in servers)
    if stepped and has is not (state.lr_schedule is not None):
        saved, here = ("no", "one") if has else ("one", "none")
        raise CheckpointError(
            f"the run was saved with {saved} learning-rate schedule, and here is {here}: give lr_schedule as the run "
            "had it."
        )


def load_state(servers: Sequence[ParameterServer], state: PSState) -> None:
    """Give optimisers and schedules what was saved of them, leaving ``state`` alone."""
    by_position = zip_longest(*(server.group_names() for server in servers), fillvalue=[])
    elsewhere = [next((name for names in groups for name in names), None) for groups in by_position]
    for server in servers:
        server.load_optimizer(state.optimizer, elsewhere)
        if server.schedule is not None and state.lr_schedule is not None:
            server.schedule.load_state_dict(deepcopy(state.lr_schedule))


def check_names(what: str, found: Iterable[str], wanted: Iterable[str]) -> None:
    """Refuse names that are not those of this model, naming the first that differs."""
    found, wanted = list(found), list(wanted)
    cure = "Build the model, and its optimiser, that the state was saved with."
    for name in found:
        if name not in wanted:
            raise CheckpointError(f"{what} has the parameter {name}, which is not among this model's. {cure}")
    for name in wanted:
        if name not in found:
            raise CheckpointError(f"{what} lacks the parameter {name} of this model. {cure}")
