"""A driver whose dense tasks run on Ray's nodes; the results are JSON in its last line.

    python -m ray_bench.pool_checks FOLDER                  all checks, on two nodes that are made for them
    python -m ray_bench.pool_checks FOLDER drive CHECK...   some, by a driver on one of these nodes

It runs in isolated namespaces; files in the folder record on which nodes tasks ran, and that a task's process died.
"""

import json
import os
import queue
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dorylus
from dorylus.errors import DorylusError
from dorylus.pipeline import Kind, Task
from dorylus.pools import TensorPool
from dorylus.pools.pacing import Policy
from dorylus.pools.ray import connected, ray_pool
from dorylus.saga.dense import Call, Mode
from dorylus.saga.stages import Body
from ray_bench.isolated import TESTS, last_json, settle_in
from ray_bench.nodes import RayNodes

SETTINGS = {"epochs": 3, "intervals": 4, "threads": 1, "lr": 0.05, "seed": 3, "eval_every": 0, "deadline_s": 60}
ON_RAY = SETTINGS | {"pool": "ray", "functions": 2}  # few: a new Ray process takes seconds to start
CORES = 2  # of a node
LIMIT_S = 120.0


class Edges(dorylus.Layer):
    """A user's layer, known to this driver only: messages scaled by a gate over both ends of an edge."""

    def __init__(self, in_columns: int, out_columns: int, act: Callable[[], None] = lambda: None, **finish: Any):
        super().__init__(in_columns, out_columns, **finish)
        self.gate = nn.Linear(2 * in_columns + 1, in_columns)
        self.lin = nn.Linear(in_columns, out_columns)
        self.act = act

    def apply_edge(self, source: Tensor, destination: Tensor, weight: Tensor) -> Tensor:
        self.act()
        return source * torch.sigmoid(self.gate(torch.cat([source, destination, weight], 1)))

    def apply_vertex(self, own: Tensor, gathered: Tensor) -> Tensor:
        return self.lin(gathered)


class Act:
    """A side effect of a body, on the nodes only; files in a folder record it."""

    def __init__(self, folder: Path, what: str) -> None:
        self.folder, self.what, self.driver = folder, what, os.getpid()

    def __call__(self) -> None:
        if os.getpid() == self.driver:
            return
        if self.what == "refuses":
            raise ArithmeticError("no edge of mine")
        if self.what == "notes":
            place = os.readlink("/proc/self/ns/net").strip("net:[]")
            (self.folder / f"node-{place}").touch()
        if self.what == "dies":
            try:
                (self.folder / "died").touch(exist_ok=False)
            except FileExistsError:
                return
            os._exit(1)


def graph() -> dorylus.Graph:
    """A small one."""
    return dorylus.communities(num_vertices=300, num_classes=3, num_features=8, average_degree=6, seed=0)


def gcn() -> Any:
    """A small model."""
    return dorylus.gcn(hidden=8, dropout=0.5)


def edges(folder: Path, what: str) -> dorylus.Program:
    """A program of the user's layers, its weights the same each time."""
    torch.manual_seed(0)
    return dorylus.Program([Edges(8, 6, Act(folder, what), dropout=0.3, activation="relu"), Edges(6, 3)])


def both(model: Callable[[], Any], **settings: Any) -> dict[str, Any]:
    """The losses of a run on Ray and of the same on threads, and the pool's statistics."""
    on_ray = dorylus.train(graph(), model(), **ON_RAY | settings)
    here = dorylus.train(graph(), model(), pool="threads", **SETTINGS)
    return {"ray": on_ray.losses, "threads": here.losses, "pool": dict(on_ray.pool)}


def refused(model: Any) -> str:
    """The error that a run ends with."""
    try:
        dorylus.train(graph(), model, **ON_RAY)
    except DorylusError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def answers(pool: TensorPool) -> str:
    """The type of a pool's answer to one call, with the message of an error."""
    given: queue.SimpleQueue[object] = queue.SimpleQueue()
    task = Task(epoch=0, phase=0, interval=0, step=0, kind=Kind.APPLY_VERTEX)
    call = Call(task, Mode.FORWARD, Body(nn.Identity()), {}, (torch.ones(2, 2),), needs_grad=(True,))
    pool.submit(call, given.put, given.put)
    answer = given.get(timeout=LIMIT_S)
    pool.close()
    assert given.empty()
    return f"{type(answer).__name__}: {answer}" if isinstance(answer, Exception) else type(answer).__name__


def without_room(ray: Any) -> str:
    """The answer while placement groups hold every core."""
    groups = [ray.util.placement_group([{"CPU": CORES}]) for _ in ray.nodes()]
    ray.get([group.ready() for group in groups], timeout=LIMIT_S)
    answer = answers(ray_pool(None, Policy()))
    for group in groups:
        ray.util.remove_placement_group(group)
    return answer


def while_others_work(ray: Any, folder: Path) -> str:
    """The answer while tasks of another program have every core."""

    def sleep(number: int) -> None:
        (folder / f"asleep-{number}").touch()
        time.sleep(LIMIT_S)

    others = [ray.remote(num_cpus=CORES)(sleep).remote(number) for number, _ in enumerate(ray.nodes())]
    until = time.monotonic() + LIMIT_S
    while len(list(folder.glob("asleep-*"))) < len(others):
        assert time.monotonic() < until
        time.sleep(0.05)
    patience = dict.fromkeys(("first_s", "at_least_s", "at_most_s", "refused_after_s", "down_after_s"), 1.0)
    answer = answers(ray_pool(None, Policy(**patience)))
    for other in others:
        ray.cancel(other, force=True)
    return answer


def contract() -> int:
    """Pytest's exit code for the contract suite of pools on this cluster, without the runs that other checks make."""
    file = TESTS / "contract" / "test_pools.py"
    # Ray has imported packages that bring plugins of pytest, whose assertions no test here reads.
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider", f"--rootdir={TESTS}"]
    with redirect_stdout(sys.stderr):
        return int(pytest.main([str(file), "-k", "not training", *quiet]))


def nodes_used(folder: Path) -> int:
    """On how many nodes tasks have run. Ray may place a whole run on one node, so this trains up to four times."""
    for _ in range(4):
        if len(list(folder.glob("node-*"))) > 1:
            break
        both(lambda: edges(folder, "notes"))
    return len(list(folder.glob("node-*")))


CHECKS: dict[str, Callable[[Any, Path], Any]] = {
    "gcn": lambda ray, folder: both(gcn),
    "gat": lambda ray, folder: both(lambda: dorylus.gat(hidden=4, heads=2, dropout=0.5)),
    "edges": lambda ray, folder: both(lambda: edges(folder, "notes")),
    "unfused": lambda ray, folder: both(gcn, fuse=False),
    "refuses": lambda ray, folder: refused(edges(folder, "refuses")),
    "contract": lambda ray, folder: contract(),
    "dies": lambda ray, folder: both(lambda: edges(folder, "dies")),
    "servers": lambda ray, folder: both(gcn, cluster="ray", servers=2, intervals=2),
    "without_room": lambda ray, folder: without_room(ray),
    "while_others_work": while_others_work,
    "nodes": lambda ray, folder: nodes_used(folder),
}


def checks(folder: Path, names: list[str]) -> dict[str, Any]:
    """Some of them, or all, on one cluster; the driver has left it when they are done."""
    ray = connected(None)
    try:
        return {name: CHECKS[name](ray, folder) for name in names or CHECKS}
    finally:
        ray.shutdown()


def main(folder: str) -> str:
    """Ray on two nodes, and the driver."""
    settle_in()
    with RayNodes(2, cpus=CORES, checks=60) as nodes:
        driver = nodes.drive("ray_bench.pool_checks", folder, "drive")
        return json.dumps(last_json(nodes.output(driver, LIMIT_S)))


if __name__ == "__main__":
    print(main(sys.argv[1]) if len(sys.argv) == 2 else json.dumps(checks(Path(sys.argv[1]), sys.argv[3:])))
