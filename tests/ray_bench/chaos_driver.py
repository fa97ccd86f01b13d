"""A driver that trains the same run again and again, as often as it is told to.

    python -m ray_bench.chaos_driver OPTIONS

Reads a line for every run, and tells what happens as lines of JSON: the run's log as it is written, then a line of kind
``ended`` with how far the weights are from those of embedded servers, and with what the run has left behind.
"""

import faulthandler
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import dorylus
from dorylus.errors import DorylusError
from dorylus.observe.sink import Record
from ray_bench.leaks import left_by_runs, wait_for_nodes
from ray_bench.runs import PIPE, furthest, model, stored, told

TOLD = {"epoch": ("epoch",), "cluster": ("what", "epoch", "error", "seconds")}


class Telling:
    """Tells of a run as it goes, by the clock that all processes of a machine share."""

    def write(self, record: Record) -> None:
        if record["kind"] in TOLD:
            tell(record["kind"], **{name: record[name] for name in TOLD[record["kind"]] if name in record})

    def close(self) -> None:
        pass


def main(folder: Path, num_nodes: int, settings: dict[str, Any]) -> None:
    faulthandler.register(signal.SIGUSR1)
    graph = stored(folder)
    settings = PIPE | settings
    expected = told(dorylus.train(graph, model("gcn"), **settings))["weights"]
    tell("ready")
    files: set[str] | None = None
    for _ in sys.stdin:
        wait_for_nodes(num_nodes)
        ended = trained(graph, settings, expected)
        files = files or listed(folder)  # the first run writes the shards, for all
        tell("ended", **ended, left=left_by_runs() + [f"file {name}" for name in listed(folder) - files])


def trained(graph: dorylus.Graph, settings: dict[str, Any], expected: dict[str, list[float]]) -> dict[str, Any]:
    """What came of a run."""
    try:
        with dorylus.Trainer(graph, model("gcn"), cluster="ray", sinks=[Telling()], **settings) as trainer:
            return {"furthest": furthest(told(trainer.run().result())["weights"], expected)}
    except DorylusError as error:
        return {"error": f"{type(error).__name__}: {error}"}


def listed(folder: Path) -> set[str]:
    """All files of a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def tell(kind: str, **what: Any) -> None:
    line = json.dumps({"kind": kind, "at": time.monotonic(), **what})
    os.write(sys.stdout.fileno(), f"\n{line}\n".encode())  # at once: several threads tell, and Ray prints there too


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
