"""Four Ray nodes on one machine, made by Ray's own class for tests, and a run on them; it prints the result as JSON.

    python -m ray_bench.one_machine FOLDER

It runs in isolated namespaces, where nothing but loopback can be reached.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from ray_bench.isolated import settle_in

HERE = "127.0.0.1"


def main(folder: Path) -> dict[str, Any]:
    settle_in()
    from ray_bench.nodes import environment

    # Ray reads these at import. All of Ray's files are in the folder, the one with its address too.
    os.environ.update(environment(folder) | {"RAY_TMPDIR": str(folder)})
    import ray
    from ray.cluster_utils import Cluster

    import dorylus
    from ray_bench.runs import PIPE, model, stored, summary

    of_node = {"node_ip_address": HERE, "num_cpus": 2, "object_store_memory": 100_000_000}
    cluster = Cluster(True, head_node_args={**of_node, "include_dashboard": False, "temp_dir": str(folder / "ray")})
    try:
        for _ in range(3):
            cluster.add_node(wait=False, **of_node)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, _node_ip_address=HERE, log_to_driver=False)
        result = dorylus.train(stored(folder), model("gcn"), cluster="ray", **(PIPE | {"servers": 4}))
        return {**summary(result), "nodes": sum(node["Alive"] for node in ray.nodes())}
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
