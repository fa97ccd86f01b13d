"""The small runs that are made on Ray's nodes and, to compare with, in this process."""

from pathlib import Path
from typing import Any

import dorylus

_CUT = {"servers": 3, "parameter_servers": 2, "intervals": 3, "threads": 1, "eval_every": 0, "deadline_s": 60}
PIPE = {**_CUT, "epochs": 10}
KILLED = PIPE | {"servers": 2, "parameter_servers": 1}  # few: a new Ray process takes seconds to start
LOST = {**_CUT, "epochs": 14, "checkpoint_every": 1, "parameter_servers": 1}
FUNCTIONS = {**_CUT, "epochs": 3, "servers": 2, "intervals": 1, "pool": "processes", "functions": 1}
ASYNC = {**_CUT, "epochs": 30, "mode": "async", "staleness": 1}


def small() -> dorylus.Graph:
    """A graph that trains in well under a second."""
    return dorylus.communities(num_vertices=600, num_classes=3, num_features=16, average_degree=8, seed=0)


def stored(folder: Path) -> dorylus.Graph:
    """The same graph, saved where every node can open it."""
    small().save(folder / "graph")
    return dorylus.Graph.open(folder / "graph")


def model(name: str) -> Any:
    """A small model of that name."""
    return dorylus.gcn(hidden=16, dropout=0.5) if name == "gcn" else dorylus.gat(hidden=4, heads=2, dropout=0.5)


def summary(result: dorylus.Result) -> dict[str, Any]:
    """Losses, accuracy and weights of a run, as JSON can hold them without losing a bit."""
    weights = {name: weight.flatten().tolist() for name, weight in result.model.state_dict().items()}
    return {"losses": list(result.losses), "test_accuracy": result.test_accuracy, "weights": weights}


def furthest(one: dict[str, list[float]], other: dict[str, list[float]]) -> float:
    """The biggest difference between any two weights."""
    return max(abs(a - b) for name in one for a, b in zip(one[name], other[name], strict=True))
