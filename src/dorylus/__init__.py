"""Dorylus: train graph neural networks on the whole graph, cheaply.

graph = dorylus.load("cora")
result = dorylus.train(graph, dorylus.gcn(hidden=16), epochs=200)
result.test_accuracy, result.predict("classes")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dorylus.config import RunConfig
    from dorylus.errors import CheckpointError, ConfigError, DataError, DorylusError, GraphError, TrainingError
    from dorylus.graph import Graph, SparseFeatures, communities, load, ring, rmat
    from dorylus.inference import predict, predict_from
    from dorylus.saga import GAT, GCN, GIN, SAGE, Layer, Program, gat, gcn, gin, sage
    from dorylus.training import Result, Trainer, plan_memory, resume, train

__version__ = "0.1.0"

_HOMES = {
    "dorylus.errors": (
        "CheckpointError", "ConfigError", "DataError", "DorylusError", "GraphError", "TrainingError",
    ),
    "dorylus.graph": ("Graph", "SparseFeatures", "communities", "load", "ring", "rmat"),
    "dorylus.saga": ("GAT", "GCN", "GIN", "SAGE", "Layer", "Program", "gat", "gcn", "gin", "sage"),
    "dorylus.config": ("RunConfig",),
    "dorylus.training": ("Result", "Trainer", "plan_memory", "resume", "train"),
    "dorylus.inference": ("predict", "predict_from"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022  (by subject)
    "Graph", "SparseFeatures", "load", "communities", "rmat", "ring",
    "gcn", "gat", "sage", "gin", "Program", "Layer", "GCN", "GAT", "SAGE", "GIN",
    "train", "resume", "predict", "predict_from", "plan_memory", "Trainer", "Result", "RunConfig",
    "DorylusError", "ConfigError", "GraphError", "DataError", "CheckpointError", "TrainingError",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used: ``import dorylus`` loads nothing, and the first layer loads torch."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dorylus' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
