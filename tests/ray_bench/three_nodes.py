"""Ray on three nodes, drivers that train on them, and what all of it left: told as JSON in the last line.

    python -m ray_bench.three_nodes FOLDER PART...

It runs in an isolated place; the folder is where every node finds the graph. Parts are made in the order given.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray_bench.isolated import last_told, settle_in
from ray_bench.leaks import left_by_nodes
from ray_bench.nodes import RayNodes
from ray_bench.runs import stored

LIMIT_S = 200.0
END_S = 30.0
SILENCE = 30  # checks that a node may be silent for on a busy machine, where none is to be lost


def main(folder: str, parts: list[str]) -> str:
    settle_in()
    stored(Path(folder))
    told: dict[str, Any] = {}
    with RayNodes(3, **({} if "lost_node" in parts else {"checks": SILENCE})) as nodes:
        for part in parts:
            told[part] = PARTS[part](nodes, folder)
    return json.dumps({**told, "left_by_nodes": left_by_nodes()})


def checks(*names: str) -> Callable[[RayNodes, str], Any]:
    """Runs on Ray's servers, all of one driver."""
    return lambda nodes, folder: finished(nodes.drive("ray_bench.checks", folder, *names))


def pool(nodes: RayNodes, folder: str) -> Any:
    """Runs whose dense tasks are Ray's: what every kind of fault needs, and no more."""
    names = ("edges", "refuses", "dies", "without_room", "while_others_work", "nodes")
    return finished(nodes.drive("ray_bench.pool_checks", folder, "drive", *names))


def doctor_well(nodes: RayNodes, folder: str) -> tuple[int, str]:
    """What the doctor says of all nodes."""
    return asked(nodes, f"{folder}/graph")


def doctor_apart(nodes: RayNodes, folder: str) -> dict[str, Any]:
    """What the doctor says once two nodes do not reach each other, and of a folder that is no store."""
    addresses = nodes.network.addresses
    for me, peer in ((1, 2), (2, 1)):
        words = nodes.network.command(me, ["ip", "route", "add", "prohibit", addresses[peer]])
        subprocess.run(words, check=True)
    return {"addresses": addresses, "said": asked(nodes, folder)}


def asked(nodes: RayNodes, store: str) -> tuple[int, str]:
    """The doctor's exit code and words."""
    driver = nodes.drive("dorylus.cli", "doctor", "--cluster", "ray", "--threads", "1", "--store", store)
    said, _ = driver.communicate(timeout=LIMIT_S)
    return driver.returncode, said


def lost_driver(nodes: RayNodes, folder: str) -> dict[str, Any]:
    """A driver is killed in the middle of its run; what was left of it, and another that goes on."""
    driver = nodes.drive("ray_bench.lost", folder, "begin")
    wait_for_epoch(driver, 4)
    driver.kill()
    until = time.monotonic() + END_S
    while nodes.servers() and time.monotonic() < until:
        time.sleep(0.1)
    left = list(nodes.servers().values())
    return {**finished(nodes.drive("ray_bench.lost", folder, "resume")), "left": left}


def lost_node(nodes: RayNodes, folder: str) -> dict[str, Any]:
    """A node is lost for good, and the others have no room for its server."""
    driver = nodes.drive("ray_bench.lost", folder, "elastic")
    wait_for_epoch(driver, 3)
    nodes.kill_node(2)
    told: dict[str, Any] = finished(driver)
    return told


def wait_for_epoch(driver: "subprocess.Popen[str]", epoch: int) -> None:
    """Read what a driver tells until that epoch is done."""
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith('{"epoch"') and json.loads(line)["epoch"] >= epoch:
            return
    raise SystemExit(f"the driver ended before epoch {epoch}.")


def finished(driver: "subprocess.Popen[str]") -> Any:
    """What a driver tells in its last line."""
    told, _ = driver.communicate(timeout=LIMIT_S)
    if driver.returncode != 0:
        raise SystemExit(f"the driver failed:\n{told}")
    return last_told(told)


PARTS: dict[str, Callable[[RayNodes, str], Any]] = {
    "runs": checks("gcn", "killed", "too_big"),
    "more_runs": checks("async", "functions"),
    "pool": pool,
    "lost_driver": lost_driver,
    "lost_node": lost_node,  # and none after it: there are two nodes then
    "doctor_well": doctor_well,
    "doctor_apart": doctor_apart,  # as the last, too
}


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2:]))
