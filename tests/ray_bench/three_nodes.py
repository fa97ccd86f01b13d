"""Ray on three nodes, a driver that trains on them, and what all of it left: told as JSON in the last line.

    python -m ray_bench.three_nodes FOLDER

It runs in an isolated place; the folder is where every node finds the graph.
"""

import json
import subprocess
import sys
import time
from typing import Any

from ray_bench.isolated import last_told, settle_in
from ray_bench.leaks import left_by_nodes
from ray_bench.nodes import RayNodes

LIMIT_S = 200.0
END_S = 30.0


def main(folder: str) -> str:
    settle_in()
    with RayNodes(3) as nodes:
        told = finished(nodes.drive("ray_bench.checks", folder))
        told["lost_driver"] = lost_driver(nodes, folder)
        told["lost_node"] = lost_node(nodes, folder)
    return json.dumps({**told, "left_by_nodes": left_by_nodes()})


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
    return finished(driver)


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


if __name__ == "__main__":
    print(main(sys.argv[1]))
