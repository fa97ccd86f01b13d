"""ring: every vertex linked to the next, the smallest graph with a shape one knows by heart."""

import numpy as np

from dorylus.errors import ConfigError
from dorylus.graph.generators.drawing import check_vertices, random_features, random_masks
from dorylus.graph.graph import Graph


def ring(
    num_vertices: int = 1_000,
    num_classes: int = 4,
    num_features: int = 16,
    *,
    directed: bool = False,
    signal: float = 1.0,
    split: tuple[float, float] = (0.6, 0.2),
    seed: int = 0,
) -> Graph:
    """A cycle 0 - 1 - ... - 0 (``directed``: v -> v + 1), cut into ``num_classes`` arcs that are the labels."""
    check_vertices(num_vertices, num_classes, num_features, signal, seed)
    if num_vertices < 3 or num_classes > num_vertices:
        raise ConfigError(
            f"num_vertices={num_vertices} with num_classes={num_classes}, but a ring has at least 3 vertices and at "
            "most one class a vertex: use more vertices, or fewer classes."
        )
    rng = np.random.default_rng(seed)
    vertex = np.arange(num_vertices)
    labels = vertex * num_classes // num_vertices
    return Graph.from_edges(
        vertex,
        np.roll(vertex, -1),
        num_vertices,
        undirected=not directed,
        features=random_features(rng, labels, num_classes, num_features, signal),
        labels=labels,
        **random_masks(rng, num_vertices, split),
        name="ring",
        num_classes=num_classes,
    )
