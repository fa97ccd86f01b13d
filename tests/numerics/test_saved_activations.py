"""Rematerialisation switched off on functions: activations travel back and forth, and the numbers stay the same."""

from functools import cache
from itertools import count
from typing import Any

import pytest
from cut_runs import make_program
from programs import program
from small_graphs import NUM_CLASSES, NUM_FEATURES, sample

import dorylus
from dorylus.pools.functions.functions_pool import functions_pool
from dorylus.pools.functions.invocations import FunctionsConfig
from dorylus.pools.pacing import Policy
from dorylus.pools.pool import InvocationResponse, Lost
from dorylus.pools.processes import ProcessesInvoker
from dorylus.pools.relaunch import Relaunching

TOLERANCE = 1e-5
SETTINGS: dict[str, Any] = {"epochs": 3, "intervals": 3, "threads": 2, "eval_every": 0, "seed": 3, "deadline_s": 60}
ALONE = {"mode": "async", "intervals": 1}  # no interval is ahead of another: as exact as threads
PATHS = ("inline", "direct")


def model(name: str) -> dorylus.Program:
    if name == "norm and residual":
        return program("gcn", layer_norm=True, residual=True, dropout=0.3)
    if name == "one layer of edges":
        return make_program("edges sum", num_layers=1, num_features=NUM_FEATURES, num_classes=NUM_CLASSES)
    return make_program(name, num_features=NUM_FEATURES, num_classes=NUM_CLASSES)


def train(name: str, **settings: Any) -> dorylus.Result:
    return dorylus.train(sample(directed=True).graph, model(name), **SETTINGS | settings)


@cache
def losses_here(name: str, **settings: Any) -> list[float]:
    return train(name, **settings).losses


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "name",
    [
        "norm and residual",
        pytest.param("gat", marks=pytest.mark.soak),
        pytest.param("gcn", marks=pytest.mark.soak),
        pytest.param("edges sum", marks=pytest.mark.soak),
    ],
)
def test_losses_are_those_of_threads(name, path):
    result = train(name, pool="processes", data_path=path, rematerialize=False)
    assert result.losses == pytest.approx(losses_here(name), abs=TOLERANCE)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("fuse", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_more_bytes_travel_than_with_rematerialisation(path, fuse):
    settings = {"pool": "processes", "data_path": path, "fuse": fuse, "functions": 1}  # programs travel to one, once
    kept, again = (train("norm and residual", **settings, rematerialize=given) for given in (False, None))
    assert kept.losses == pytest.approx(again.losses, abs=TOLERANCE)
    for direction in ("bytes_in", "bytes_out"):
        assert kept.pool[direction] > 1.05 * again.pool[direction]


def test_bodies_on_edges_send_their_activations_too():
    name = "one layer of edges"
    kept, again = (train(name, pool="processes", rematerialize=given, **ALONE) for given in (False, None))
    for result in (kept, again):
        assert result.losses == pytest.approx(losses_here(name, **ALONE), abs=TOLERANCE)
    assert kept.pool["bytes_out"] > 1.1 * again.pool["bytes_out"]


class Lossy(ProcessesInvoker):
    """Of four invocations it loses one before its start, and the answer of another."""

    def __init__(self, num_workers: int) -> None:
        super().__init__(num_workers)
        self._numbers = count(1)

    def invoke(self, request: bytes, timeout_s: float) -> InvocationResponse:
        number = next(self._numbers) % 4
        answer = None if number == 0 else super().invoke(request, timeout_s)
        if answer is None or number == 2:
            raise Lost("the answer is lost")
        return answer


@pytest.mark.parametrize("path", PATHS)
def test_saved_activations_come_from_the_attempt_that_succeeded(path):
    config = FunctionsConfig(data_path=path, part_rows=17, rematerialize=False)
    pool = Relaunching(functions_pool(Lossy(2), config), Policy(backoff_s=0.01))
    assert train("norm and residual", pool=pool).losses == pytest.approx(
        losses_here("norm and residual"), abs=TOLERANCE
    )
    assert pool.counts.relaunches > 5
