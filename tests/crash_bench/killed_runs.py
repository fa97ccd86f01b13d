"""A run that is killed again and again, and the time it ran, measured from outside.

    python -m crash_bench.killed_runs RUN_DIR KILLS TASK_S EPOCHS [URL]

Each time the run is a forked child of this warm process. The time from when the child begins the run to when it is
killed is measured by the system's clock, not by the run's accounts. At the end one child runs undisturbed to the end.
Prints {"measured_s": ..., "epochs": ...} as JSON: seconds of all children, and the epochs that they trained together.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch._dynamo  # torch loads it with the first optimiser, which takes a second

import dorylus
from dorylus.pools import PoolHandle, ThreadsPool
from dorylus.runs import read_log
from dorylus.training.trainer import Trainer

INSTANCE = "c5.large"


class SlowPool(ThreadsPool):
    """Dense tasks that sleep: they take time, but no processor."""

    def __init__(self, task_s: float) -> None:
        super().__init__()
        self._task_s = task_s

    def submit(self, call, done, failed):
        time.sleep(self._task_s)
        super().submit(call, done, failed)


def run(run_dir: Path, graph: dorylus.Graph, task_s: float, epochs: int, url: str | None) -> None:
    """Begin or resume the run, and train to its end; on functions behind a URL, or on slow threads."""
    model, pool = dorylus.gcn(hidden=4), SlowPool(task_s)
    settings = {"threads": 1, "intervals": 2, "eval_every": 0, "checkpoint_every": 5, "instance": INSTANCE}
    if (run_dir / "run.toml").exists():
        # A pool object is not part of the run folder: the resumed trainer gets it here.
        trainer = Trainer.resume(run_dir, graph, model)
        trainer._pool = None if url else PoolHandle(pool)
    elif url:
        settings |= {"pool": "http", "function_url": url, "function_service": "lambda-x86", "functions": 4}
        trainer = Trainer(graph, model, epochs=epochs, run_dir=run_dir, data_path="inline", **settings)
    else:
        trainer = Trainer(graph, model, pool=pool, epochs=epochs, run_dir=run_dir, **settings)
    with trainer:
        trainer.run().result()


def epochs_of_this_child(run_dir: Path) -> int:
    """How many epochs were trained since the run was last begun or resumed."""
    records = read_log(run_dir / "log.jsonl")
    begun = max((place for place, record in enumerate(records) if record["kind"] == "run"), default=0)
    return sum(record["kind"] == "epoch" for record in records[begun:])


def wait_for_an_epoch(run_dir: Path) -> None:
    """Wait until the child that was just begun has trained an epoch."""
    log, deadline_s = run_dir / "log.jsonl", time.monotonic() + 60
    before = log.stat().st_mtime_ns if log.exists() else 0
    while not log.exists() or log.stat().st_mtime_ns == before or not epochs_of_this_child(run_dir):
        assert time.monotonic() < deadline_s, "no epoch is over"
        time.sleep(0.01)


def main() -> None:
    """Kill the run ``kills`` times, then let it finish."""
    run_dir, kills, task_s, epochs = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    url = sys.argv[5] if len(sys.argv) > 5 else None
    graph = dorylus.communities(num_vertices=200, num_classes=3, seed=0)
    assert torch._dynamo is not None
    moments, measured_s, trained = random.Random(kills), 0.0, 0
    for number in range(kills + 1):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, str(time.monotonic()).encode())
            try:
                run(run_dir, graph, task_s, epochs, url)
                os.write(writing, f" {time.monotonic()}".encode())
                os._exit(0)
            finally:
                os._exit(1)
        os.close(writing)
        if number < kills:
            wait_for_an_epoch(run_dir)
            time.sleep(moments.uniform(0, 20 * task_s))
            os.kill(child, signal.SIGKILL)
        killed_s = time.monotonic()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status == (-signal.SIGKILL if number < kills else 0), f"child {number} ended with {status}"
        began_s, *ended_s = map(float, os.read(reading, 100).split())
        os.close(reading)
        measured_s += (ended_s or [killed_s])[0] - began_s
        trained += epochs_of_this_child(run_dir)
    print(json.dumps({"measured_s": measured_s, "epochs": trained}))


if __name__ == "__main__":
    main()
