"""Ray on three nodes, a driver that trains on them, and what all of it left: told as JSON in the last line.

    python -m ray_bench.three_nodes FOLDER

It runs in an isolated place; the folder is where every node finds the graph.
"""

import json
import sys

from ray_bench.isolated import last_told, settle_in
from ray_bench.leaks import left_by_nodes
from ray_bench.nodes import RayNodes

LIMIT_S = 200.0


def main(folder: str) -> str:
    settle_in()
    with RayNodes(3) as nodes:
        driver = nodes.drive("ray_bench.checks", folder)
        told, _ = driver.communicate(timeout=LIMIT_S)
        if driver.returncode != 0:
            raise SystemExit(f"the driver failed:\n{told}")
    return json.dumps({**last_told(told), "left_by_nodes": left_by_nodes()})


if __name__ == "__main__":
    print(main(sys.argv[1]))
