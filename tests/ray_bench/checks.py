"""A driver on Ray's nodes: trains there in several ways, and prints the results as JSON in its last line.

    python -m ray_bench.checks FOLDER CHECK...

Each result has losses, scores and weights; the test that starts this driver compares them with embedded runs.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dorylus
from dorylus.errors import DorylusError
from dorylus.runs.run_log import MemorySink
from ray_bench.leaks import left_by_runs
from ray_bench.network import alive, namespace, title
from ray_bench.runs import ASYNC, FUNCTIONS, KILLED, PIPE, model, summary

CHECKS: dict[str, Callable[[dorylus.Graph], dict[str, Any]]] = {
    "gcn": lambda graph: on_ray(graph, "gcn", PIPE),
    "async": lambda graph: on_ray(graph, "gcn", ASYNC),
    "functions": lambda graph: on_ray(graph, "gcn", FUNCTIONS),
    "killed": lambda graph: killed(graph),
    "too_big": lambda graph: refused(graph, servers=50),
}


def main(folder: Path, checks: list[str]) -> dict[str, Any]:
    """The named checks, on one cluster, and what they leave behind."""
    graph = dorylus.Graph.open(folder / "graph")
    return {**{name: CHECKS[name](graph) for name in checks}, "left": left_by_runs()}


def on_ray(graph: dorylus.Graph, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """A run, and on how many nodes its graph servers were."""
    log = MemorySink()
    with dorylus.Trainer(graph, model(name), cluster="ray", sinks=[log], **settings) as trainer:
        result = trainer.run().result()
        places = {namespace(pid) for pid in graph_servers()}
        where = {"servers": len(graph_servers()), "nodes": len(places)}
    epochs = [record for record in log.records if record["kind"] == "epoch"]
    spans = next(record["spans"] for record in log.records if record["kind"] == "spans")
    return {
        **summary(result), **where, "pool": dict(result.pool), "servers_of_spans": sorted({span[6] for span in spans}),
        "server_reports": epochs[-1]["servers"], "bill": result.bill.to_dict(), "seconds": result.seconds,
    }  # fmt: skip


def killed(graph: dorylus.Graph) -> dict[str, Any]:
    """A run in the middle of which the process of one of its graph servers is killed."""
    log = MemorySink()
    with dorylus.Trainer(graph, model("gat"), cluster="ray", sinks=[log], **KILLED) as trainer:
        trainer.run(3)
        saboteur = threading.Timer(0.02, os.kill, (graph_servers()[1], signal.SIGKILL))
        saboteur.start()
        result = trainer.run().result()
        saboteur.join()
        noted = [record["what"] for record in log.records if record.get("what") in ("fault", "recovered")]
        return {**summary(result), "noted": noted}


def refused(graph: dorylus.Graph, **settings: Any) -> dict[str, Any]:
    """The error of a run that cannot start, and the seconds until it was raised."""
    begun = time.monotonic()
    try:
        dorylus.train(graph, model("gcn"), cluster="ray", **(PIPE | {"intervals": 1} | settings))
    except DorylusError as error:
        return {"error": f"{type(error).__name__}: {error}", "seconds": time.monotonic() - begun}
    return {"error": "", "seconds": 0.0}


def graph_servers() -> list[int]:
    """The processes of graph servers on all nodes."""
    return [pid for pid in alive() if title(pid).startswith("ray::GraphServer")]


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2:])))
