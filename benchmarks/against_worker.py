"""A process of `benchmarks.against`: makes one run and prints its bits, then trains an epoch for every line it reads.

The interpreters of several checkouts execute it. It uses only public names of dorylus, which all of them have.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import dorylus

EPOCHS = 6
HALF = EPOCHS // 2
GRAPH = {"average_degree": 20, "num_features": 64, "num_classes": 16, "homophily": 0.5}
SETTINGS = {"epochs": 10**9, "eval_every": EPOCHS, "checkpoint_every": EPOCHS, "seed": 7, "deadline_s": 120}


class Gated(dorylus.Layer):
    """A layer as users write it, with a dense ApplyEdge: y_v = W' x_v + mean of sigmoid(G [W x_u, W x_v]) * W x_u."""

    reduce = "mean"
    own = "input"

    def __init__(self, in_columns: int, out_columns: int, **finish: object) -> None:
        super().__init__(in_columns, out_columns, **finish)
        self.lin = nn.Linear(in_columns, out_columns)
        self.own_lin = nn.Linear(in_columns, out_columns)
        self.gate = nn.Linear(2 * out_columns, out_columns)

    def prepare(self, x: Tensor) -> Tensor:
        return self.lin(x)

    def apply_edge(self, source: Tensor, destination: Tensor, weight: Tensor) -> Tensor:
        return weight * torch.sigmoid(self.gate(torch.cat([source, destination], dim=1))) * source

    def apply_vertex(self, own: Tensor, gathered: Tensor) -> Tensor:
        return self.own_lin(own) + gathered


def main() -> None:
    request = json.loads(sys.argv[1])
    folder = Path(request["folder"])
    dorylus.communities(num_vertices=request["vertices"], seed=0, **GRAPH).save(folder / "store")
    graph = dorylus.Graph.open(folder / "store")
    with ray_cluster(folder, request["settings"].get("cluster") == "ray"), opened(graph, request) as trainer:
        trainer.run(EPOCHS - trainer.epoch)
        print(json.dumps(report(graph, request, trainer)), flush=True)
        for _ in sys.stdin:
            start = time.perf_counter()
            trainer.run(1)
            print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)


@contextmanager
def ray_cluster(folder: Path, needed: bool) -> Iterator[None]:
    """Ray on the loopback address, where a run needs it. The caller has set its environment."""
    if not needed:
        yield
        return
    import ray

    own = {"_node_ip_address": "127.0.0.1", "_temp_dir": str(folder / "ray"), "object_store_memory": 100_000_000}
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, **own)
    try:
        yield
    finally:
        ray.shutdown()


def model_of(request: dict[str, Any], graph: dorylus.Graph) -> Any:
    """The model of a run; the same initial weights whenever it is made."""
    torch.manual_seed(0)
    columns, classes = graph.num_features, graph.num_classes
    if request["model"] == "edge":
        return dorylus.Program([Gated(columns, 16, activation="relu", dropout=0.2), Gated(16, classes)])
    if request["model"] == "mixed":
        return dorylus.Program([
            dorylus.SAGE(columns, 32, aggregator="max", activation="relu", dropout=0.2),
            dorylus.GAT(32, 32, heads=4, activation="elu", dropout=0.2),
            dorylus.GIN(32, 32, activation="relu", layer_norm=True, residual=True),
            dorylus.GCN(32, classes, dropout=0.2),
        ])  # fmt: skip
    return getattr(dorylus, request["model"])(**request["options"])


def opened(graph: dorylus.Graph, request: dict[str, Any]) -> dorylus.Trainer:
    """A trainer at the beginning of the run, or half way, resumed from a checkpoint."""
    run_dir, settings = Path(request["folder"], "run"), SETTINGS | request["settings"]
    trainer = dorylus.Trainer(graph, model_of(request, graph), run_dir=run_dir, **settings)
    if not request["resumed"]:
        return trainer
    with trainer:
        trainer.run(HALF)
    return dorylus.Trainer.resume(run_dir, graph, model_of(request, graph))


def report(graph: dorylus.Graph, request: dict[str, Any], trainer: dorylus.Trainer) -> dict[str, Any]:
    """The losses of the run so far in hexadecimal, and digests of its weights, predictions and scores."""
    result, run_dir = trainer.result(), Path(request["folder"], "run")
    predictions = {what: result.predict(what) for what in ("logits", "embeddings")}
    predictions["saved"] = dorylus.predict_from(run_dir, graph=graph, model=model_of(request, graph))
    scores = {name: np.float64(score) for name, score in sorted(result.metrics.items())}
    return {
        "loaded": loaded_files(),
        "losses": [loss.hex() for loss in result.losses],
        "weights": digest(sorted(result.model.state_dict().items())),
        "predictions": digest([*predictions.items(), *scores.items()]),
    }


def loaded_files() -> list[str]:
    """The files of this checkout that show where it is: the package, and its compiled modules."""
    modules = {name: module.__file__ or "" for name, module in sys.modules.items() if name.startswith("dorylus.")}
    return [str(dorylus.__file__), *sorted(path for path in modules.values() if path.endswith(".so"))]


def digest(named: Iterable[tuple[str, Any]]) -> str:
    """A hash of names, types, shapes and bytes of arrays."""
    sum_ = hashlib.sha256()
    for name, values in named:
        array = np.ascontiguousarray(values)
        sum_.update(f"{name} {array.dtype} {array.shape} ".encode())
        sum_.update(array.tobytes())
    return sum_.hexdigest()


if __name__ == "__main__":
    main()
