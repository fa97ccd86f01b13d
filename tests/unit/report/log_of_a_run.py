"""A made-up run log for the tests of its readers."""

from typing import Any

GRAPH = {"name": "cora", "vertices": 2708, "edges": 10556, "features": 1433, "classes": 7}


def run_record(epochs: int = 200, **others: Any) -> dict[str, Any]:
    """The opening record."""
    config = {"epochs": epochs, "run_dir": "runs/cora-gcn"}
    return {
        "kind": "run",
        "t": 0.0,
        "config": config,
        "graph": GRAPH,
        "model": {"name": "gcn", "parameters": 23063},
    } | others


def epoch_record(epoch: int, seconds: float = 0.5, **others: Any) -> dict[str, Any]:
    """One epoch that spent a quarter of its time updating weights."""
    record = {"kind": "epoch", "t": epoch * seconds, "epoch": epoch, "loss": 1 / epoch, "seconds": seconds}
    tasks = {"WU": 0.25 * seconds, "GA": 0.5 * seconds, "AV": 0.25 * seconds}
    return record | {"memory_bytes": 2**20 * epoch, "tasks": tasks} | others


def evaluation_record(epoch: int, val: float, test: float = 0.7, **others: Any) -> dict[str, Any]:
    """One evaluation."""
    scores = {"val_accuracy": val, "test_accuracy": test, "train_accuracy": 1.0}
    return {"kind": "evaluation", "epoch": epoch} | scores | others


def result_record(**others: Any) -> dict[str, Any]:
    """The closing record."""
    figures = {
        "test_accuracy": 0.815,
        "val_accuracy": 0.79,
        "peak_memory_bytes": 2**30,
        "work": "22 % of naive edge-work",
    }
    return {"kind": "result", "t": 9.0} | figures | others


def cluster_run_record(**settings: Any) -> dict[str, Any]:
    """The opening record of a run on four graph servers, asynchronous by default."""
    overrides = {"servers": 4, "parameter_servers": 2, "mode": "async", "staleness": 1} | settings
    record = run_record()
    return record | {"config": record["config"] | overrides}


def spans_record(epoch: int, *spans: tuple[Any, ...], **others: Any) -> dict[str, Any]:
    """The traced tasks of an epoch: (kind, interval, thread, start_s, end_s, server, the epoch it belongs to)."""
    rows = [[kind, 0, *rest] for kind, *rest in spans]
    return {"kind": "spans", "t": float(epoch), "epoch": epoch, "spans": rows} | others
