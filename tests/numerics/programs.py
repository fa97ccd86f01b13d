"""The small programs these tests train: the same freshly initialised weights on every call."""

from collections.abc import Mapping
from typing import Any

from small_graphs import NUM_CLASSES, NUM_FEATURES

import dorylus

WIDTHS: Mapping[str, dict[str, Any]] = {
    "gcn": {"hidden": 12},
    "gat": {"hidden": 4, "heads": 3},
    "sage": {"hidden": 12},
    "gin": {"hidden": 12},
}


def program(model: str, num_layers: int = 2, *, seed: int = 3, **options: Any) -> dorylus.Program:
    """A program for the sample graphs, without dropout by default."""
    chosen = WIDTHS[model] | {"num_layers": num_layers, "dropout": 0.0} | options
    return getattr(dorylus, model)(**chosen).build(NUM_FEATURES, NUM_CLASSES, seed=seed)
