"""One run in a process of its own, from an order on its command line: `python -m benchmarks.memory.job '{...}'`.

The last line it prints is JSON: what was predicted, what happened, and the group's high-water mark of every stage.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.contender import high_water_mark
from benchmarks.memory.group import HIGH_WATER_MARK

BELOW, ABOVE = 36, 4  # MiB


class Stages:
    """The high-water mark of every stage of a run; empty outside a group."""

    def __init__(self, group: str | None) -> None:
        self._file = None if group is None else Path(group) / HIGH_WATER_MARK
        self.peaks: dict[str, int] = {}

    def end(self, name: str) -> None:
        """A stage is over: record its peak, and reset the counter."""
        if self._file is not None:
            self.peaks[name] = int(self._file.read_text())
            self._file.write_text("0")


def main() -> None:
    order = json.loads(sys.argv[1])
    work = {"train": train, "plan": plan, "generate": generate, "pyg": pyg, "ingest": ingest}[order["what"]]
    print(json.dumps({**work(order), "resident_peak": high_water_mark()}))


def train(order: Mapping[str, Any]) -> dict[str, Any]:
    """Open a store, predict the memory of training, and train."""
    import dorylus
    from dorylus.runs import MemorySink

    stages = Stages(order.get("group"))
    graph = dorylus.Graph.open(order["store"])
    recipe = getattr(dorylus, order["model"])(**order["options"])
    settings = {"eval_every": 0, "threads": order["threads"], **order["settings"]}
    plan = planned(dorylus.plan_memory(graph, recipe, **settings))
    stages.end("open")
    if order.get("checkpoints"):
        settings["run_dir"] = str(Path(settings["scratch_dir"]) / f"run-{os.getpid()}")
    moved: list[dict[str, int]] = []
    start, took_s, sink = time.perf_counter(), 0.0, MemorySink()
    with dorylus.Trainer(graph, recipe, epochs=order["epochs"], sinks=[sink], **settings) as trainer:
        stages.end("make")
        for epoch in range(order["epochs"]):
            before = transfers()
            trainer.run(1)
            moved.append({name: count - before[name] for name, count in transfers().items()})
            stages.end(f"epoch {epoch + 1}")
            took_s = took_s or time.perf_counter() - start
        result = trainer.result()
        stages.end("result")
    if order.get("weights"):
        import torch

        torch.save(result.model.state_dict(), order["weights"])
    return {
        "plan": plan,
        "memory": next((record for record in sink.records if record["kind"] == "memory"), {}),
        "losses": result.losses,
        "seconds": result.epoch_seconds,
        "set_up_s": took_s - result.epoch_seconds[0],
        "moved": moved,
        "stages": stages.peaks,
        "num_edges": graph.num_edges,
    }


def plan(order: Mapping[str, Any]) -> dict[str, Any]:
    """The plans of a training under some limits: the least, half of what fits in memory, and just below and above."""
    import dorylus

    graph = dorylus.Graph.open(order["store"])
    recipe = getattr(dorylus, order["model"])(**order["options"])
    settings = {"threads": order["threads"], **order["settings"]}

    def tried(mib: int) -> Any:
        return dorylus.plan_memory(graph, recipe, **settings, memory=f"{mib}MiB")

    def first(is_so: Callable[[Any], bool]) -> int:
        low, high = 1, 1 << 20  # MiB
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if is_so(tried(middle)) else (middle + 1, high)
        return low

    least = int(tried(16).cure.split("memory='")[1].split("MiB")[0])
    border = first(lambda plan: plan.verdict == "fits")
    # A run has a little more or less loaded than a process that plans.
    named = {"least": least, "half": max(least, border // 2), "below": border - BELOW, "above": border + ABOVE}
    limits = {at: named.get(at) or int(at.removesuffix("MiB")) for at in order["at"]}
    return {"limits": {at: {"limit": mib << 20, **planned(tried(mib))} for at, mib in limits.items()}}


def planned(plan: Any) -> dict[str, Any]:
    """The figures of a plan, by kind; "process" is the memory of the process before training, and slack."""
    limits = plan.reported
    return {
        "verdict": plan.verdict,
        "peak": limits.peak,
        "intervals": limits.intervals,
        "holding": repr(limits.limited and limits.limited.policy),
        "resident": {"process": limits.peak - limits.figures.peak, **limits.figures.resident},
        "on_disk": dict(limits.figures.on_disk),
        "read": limits.figures.read,
        "written": limits.figures.written,
    }


def transfers() -> dict[str, int]:
    """Bytes that this process has had read from disks and written to them."""
    counted = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return {"read": int(counted["read_bytes"]), "written": int(counted["write_bytes"])}


def generate(order: Mapping[str, Any]) -> dict[str, Any]:
    """Write a generated graph to a store and, on request, as the arrays that PyG reads."""
    import dorylus

    graph = getattr(dorylus, order["generator"])(seed=order.get("seed", 0), **order["arguments"])
    graph.save(order["store"])
    if order.get("arrays"):
        write_arrays(graph, Path(order["arrays"]))
    return {"num_edges": graph.num_edges}


def write_arrays(graph: Any, folder: Path) -> None:
    """The graph in PyG's form."""
    import numpy as np

    folder.mkdir()
    destination = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    np.save(folder / "edge_index.npy", np.stack([graph.indices.astype(np.int64), destination]))
    for name, array in {"x": graph.features, "y": graph.labels, "train": graph.train_mask}.items():
        np.save(folder / f"{name}.npy", array)


def pyg(order: Mapping[str, Any]) -> dict[str, Any]:
    """PyG's best path over the same graph; prints its progress to stderr, as it may be killed at any time."""
    from benchmarks import peers
    from benchmarks.shapes import Shape

    sizes = {name: order["sizes"][name] for name in ("num_vertices", "num_edges", "num_features", "num_classes")}
    shape = Shape(name="memory", hidden=order["options"]["hidden"], **sizes)
    print("building", file=sys.stderr, flush=True)
    peer = peers.build("pyg-gcn-best", Path(order["arrays"]), shape, peers.Recipe(threads=order["threads"]))
    seconds = []
    for epoch in range(order["epochs"]):
        print(f"epoch {epoch + 1}", file=sys.stderr, flush=True)
        seconds += peer.epochs(1)
    return {"losses": peer.losses, "seconds": seconds}


def ingest(order: Mapping[str, Any]) -> dict[str, Any]:
    """Edges, features and labels in files as a store."""
    from dorylus.ingest.entry_point import ingest_edges

    start = time.perf_counter()
    made = ingest_edges([Path(order["edges"])], order["store"], **order["settings"])
    return {"num_edges": made.num_edges, "num_vertices": made.num_vertices, "seconds": time.perf_counter() - start}


if __name__ == "__main__":
    main()
