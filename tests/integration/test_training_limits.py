"""A run that fits a limit by the plan survives in a control group of exactly that size."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dorylus

CHILD = """
import json, sys
from pathlib import Path
import dorylus
from dorylus.runs import MemorySink

group, graph = Path(sys.argv[1]), dorylus.Graph.open(sys.argv[2])
model, settings = dorylus.gcn(hidden=128), {"threads": 2, "eval_every": 1, "epochs": 2}
low, high = 1, 1 << 14
while low < high:  # the least limit, in MiB, under which nothing is in files
    middle = (low + high) // 2
    fits = dorylus.plan_memory(graph, model, memory=f"{middle}MiB", **settings).verdict == "fits"
    low, high = (low, middle) if fits else (middle + 1, high)
(group / "memory.limit_in_bytes").write_text(str(low << 20))
sink = MemorySink()
dorylus.train(graph, model, memory=f"{low}MiB", sinks=[sink], **settings)
(report,) = [record for record in sink.records if record["kind"] == "memory"]
print(json.dumps({"predicted": report["peak_bytes"], "files": sum(report["on_disk"].values())}))
"""


def test_a_run_lives_in_the_least_limit_under_which_all_is_in_memory(group: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    dorylus.rmat(num_vertices=100_000, num_edges=1_200_000, num_features=64, num_classes=40).save(store)
    for path in store.iterdir():
        with open(path, "rb") as file:  # pages that are in memory already would not count
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    command = [sys.executable, "-c", CHILD, str(group), str(store)]
    joined = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh", *command]
    ran = subprocess.run(joined, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout.splitlines()[-1])
    assert report["files"] == 0
    assert report["predicted"] == pytest.approx(int((group / "memory.max_usage_in_bytes").read_text()), rel=0.15)
