"""A contender of `benchmarks.against`: makes the graph if it is not there, then an epoch for every line it reads.

It is run by the interpreters of several checkouts, and uses only what all of them have.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import dorylus


class Seconds:
    """A sink that keeps the time of the last epoch."""

    last = 0.0

    def write(self, record: dict[str, Any]) -> None:
        if record["kind"] == "epoch":
            self.last = record["seconds"]

    def close(self) -> None:
        pass


def main() -> None:
    order = json.loads(sys.argv[1])
    store = Path(order["store"])
    if not store.exists():
        sizes = {"num_vertices": order["vertices"], "average_degree": order["degree"]}
        columns = {"num_features": order["features"], "num_classes": order["classes"]}
        dorylus.communities(seed=0, **sizes, **columns).save(store)
    graph, seconds = dorylus.Graph.open(store), Seconds()
    model = getattr(dorylus, order["model"])(**order["options"])
    settings = {"epochs": 10**9, "eval_every": 0, "threads": order["threads"]}
    with dorylus.Trainer(graph, model, sinks=[seconds], **settings) as trainer:
        for _ in sys.stdin:
            trainer.run(1)
            print(seconds.last, flush=True)


if __name__ == "__main__":
    main()
