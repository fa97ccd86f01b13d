"""Batches of edges made from lists, as a reader would give them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dorylus.ingest.batches import EdgeBatch, Tokens, locate_by_number


def batch_of(edges: list[tuple[Any, Any]]) -> EdgeBatch:
    """One batch; names where the first end is a name."""
    if edges and isinstance(edges[0][0], str):
        return EdgeBatch(Tokens.of(a for a, _ in edges), Tokens.of(b for _, b in edges), None, 0, locate_by_number(0))
    source, destination = np.array(edges, np.int64).reshape(-1, 2).T.copy()
    return EdgeBatch(source, destination, None, 0, locate_by_number(0))


class Listed:
    """Vertices listed for a numbering, as ``open_vertices`` would give them."""

    total_bytes = None

    def __init__(self, *batches: list[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[EdgeBatch]:
        return (batch_of([(each, each) for each in batch]) for batch in self._batches)
