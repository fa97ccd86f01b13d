"""A run on a Ray cluster of one machine that is ended by SIGTERM; the result is JSON in the last line.

    python -m ray_bench.stopped FOLDER

It runs in isolated namespaces, where nothing but loopback can be reached.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ray_bench.isolated import settle_in

HERE = "127.0.0.1"
EPOCHS = 8


def main(folder: Path) -> dict[str, Any]:
    settle_in()
    from ray_bench.nodes import environment

    # Ray reads these at import. All of Ray's files are in the folder, the one with its address too.
    os.environ.update(environment(folder) | {"RAY_TMPDIR": str(folder)})
    from ray.cluster_utils import Cluster

    from ray_bench.runs import stored

    of_node = {"node_ip_address": HERE, "num_cpus": 2, "object_store_memory": 100_000_000}
    cluster = Cluster(True, head_node_args={**of_node, "include_dashboard": False, "temp_dir": str(folder / "ray")})
    try:
        store = stored(folder).store
        words = [
            "train",
            str(store),
            "--cluster",
            "ray",
            "--address",
            cluster.address,
            "--servers",
            "2",
            "--threads",
            "1",
        ]
        words += [
            "--epochs",
            "100000",
            "--eval-every",
            "0",
            "--checkpoint-every",
            "0",
            "--run-dir",
            str(folder / "run"),
        ]
        process = subprocess.Popen(
            [sys.executable, "-m", "dorylus.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        servers = wait_for_epochs(folder / "run" / "log.jsonl", process)
        began_s = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        took_s = time.monotonic() - began_s
        end_s = time.monotonic() + 20
        while alive(servers) and time.monotonic() < end_s:
            time.sleep(0.1)
        saved = sorted(path.name for path in (folder / "run" / "checkpoints").iterdir())
        left = len(alive(servers))
        return {"code": process.returncode, "err": err, "seconds": took_s, "saved": saved, "left": left}
    finally:
        cluster.shutdown()


def wait_for_epochs(log: Path, process: "subprocess.Popen[str]") -> list[int]:
    """The processes of the run's servers, once it has done some epochs."""
    end_s = time.monotonic() + 100
    while time.monotonic() < end_s and process.poll() is None:
        lines = log.read_text().splitlines() if log.exists() else []
        records = [json.loads(line) for line in lines if line.endswith("}")]
        if sum(record["kind"] == "epoch" for record in records) >= EPOCHS:
            places = next(record for record in records if record.get("what") == "session")["servers"]
            return [pid for each in places.values() for _, pid in each]
        time.sleep(0.1)
    raise AssertionError(f"the run came to no epoch: {process.communicate(timeout=5)}")


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
