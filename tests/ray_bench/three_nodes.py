"""Ray on three nodes, drivers that train on them, and what is left afterwards; the results are JSON in the last line.

    python -m ray_bench.three_nodes FOLDER PART...

It runs in isolated namespaces; every node finds the graph in the folder. Parts run in the order given.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray_bench.isolated import last_json, settle_in
from ray_bench.leaks import left_by_nodes
from ray_bench.nodes import RayNodes
from ray_bench.runs import stored

LIMIT_S = 200.0
END_S = 30.0
SILENCE = 30  # health checks that a node may miss on a busy machine, where no node is to be lost


def main(folder: str, parts: list[str]) -> str:
    settle_in()
    stored(Path(folder))
    results: dict[str, Any] = {}
    with RayNodes(3, **({} if "lost_node" in parts else {"checks": SILENCE})) as nodes:
        for part in parts:
            results[part] = PARTS[part](nodes, folder)
    return json.dumps({**results, "left_by_nodes": left_by_nodes()})


def checks(*names: str) -> Callable[[RayNodes, str], Any]:
    """Runs with servers on Ray, all from one driver."""
    return lambda nodes, folder: finished(nodes, nodes.drive("ray_bench.checks", folder, *names))


def pool(nodes: RayNodes, folder: str) -> Any:
    """Runs with dense tasks on Ray: the fewest that cover every kind of fault."""
    names = ("edges", "refuses", "dies", "without_room", "while_others_work", "nodes")
    return finished(nodes, nodes.drive("ray_bench.pool_checks", folder, "drive", *names))


def doctor_connected(nodes: RayNodes, folder: str) -> tuple[int, str]:
    """What the doctor reports of all nodes."""
    return run_doctor(nodes, f"{folder}/graph")


def doctor_disconnected(nodes: RayNodes, folder: str) -> dict[str, Any]:
    """What the doctor reports when two nodes do not reach each other and the folder is no store."""
    addresses = nodes.network.addresses
    for me, peer in ((1, 2), (2, 1)):
        words = nodes.network.command(me, ["ip", "route", "add", "prohibit", addresses[peer]])
        subprocess.run(words, check=True)
    return {"addresses": addresses, "report": run_doctor(nodes, folder)}


def run_doctor(nodes: RayNodes, store: str) -> tuple[int, str]:
    """The doctor's exit code and output."""
    driver = nodes.drive("dorylus.cli", "doctor", "--cluster", "ray", "--threads", "1", "--store", store)
    output, _ = driver.communicate(timeout=LIMIT_S)
    return driver.returncode, output


def lost_driver(nodes: RayNodes, folder: str) -> dict[str, Any]:
    """A driver is killed in the middle of its run: the servers that are left of it, and the result of a resumed run."""
    driver = nodes.drive("ray_bench.lost", folder, "begin")
    wait_for_epoch(driver, 4)
    driver.kill()
    until = time.monotonic() + END_S
    while nodes.servers() and time.monotonic() < until:
        time.sleep(0.1)
    left = list(nodes.servers().values())
    return {**finished(nodes, nodes.drive("ray_bench.lost", folder, "resume")), "left": left}


def lost_node(nodes: RayNodes, folder: str) -> dict[str, Any]:
    """A node is lost for good, and the others have no room for its server."""
    driver = nodes.drive("ray_bench.lost", folder, "elastic")
    wait_for_epoch(driver, 3)
    nodes.kill_node(2)
    result: dict[str, Any] = finished(nodes, driver)
    return result


def wait_for_epoch(driver: "subprocess.Popen[str]", epoch: int) -> None:
    """Read a driver's output until that epoch is done."""
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith('{"epoch"') and json.loads(line)["epoch"] >= epoch:
            return
    raise SystemExit(f"the driver ended before epoch {epoch}.")


def finished(nodes: RayNodes, driver: "subprocess.Popen[str]") -> Any:
    """The JSON that a driver prints in its last line."""
    return last_json(nodes.output(driver, LIMIT_S))


PARTS: dict[str, Callable[[RayNodes, str], Any]] = {
    "runs": checks("gcn", "killed", "too_big"),
    "more_runs": checks("async", "functions"),
    "pool": pool,
    "lost_driver": lost_driver,
    "lost_node": lost_node,  # the last: two nodes are left then
    "doctor_connected": doctor_connected,
    "doctor_disconnected": doctor_disconnected,  # the last, too: the routes stay cut
}


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2:]))
