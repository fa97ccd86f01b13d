"""Edges that are in memory already, as a source of batches."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dorylus.errors import GraphError
from dorylus.graph import canonical
from dorylus.graph.ingest.batches import EdgeBatch, counted

BATCH = 1 << 20


class ArrayEdges:
    """The edges source[e] -> destination[e], perhaps with weights; any kind of whole numbers, mapped files too."""

    def __init__(self, source: Any, destination: Any, weight: Any = None, *, batch: int = BATCH) -> None:
        self._source = canonical.whole_numbers(source, "source")
        self._destination = canonical.whole_numbers(destination, "destination")
        self._weight = None if weight is None else np.asarray(weight)
        self._batch = batch
        sizes = [len(each) for each in (self._source, self._destination, self._weight) if each is not None]
        if len(set(sizes)) > 1:
            found = " and ".join(map(str, sizes))
            raise GraphError(f"there are {found} sources, destinations and weights. Give one of each an edge.")
        self.num_edges = len(self._source)
        self.total_bytes: int | None = 16 * self.num_edges

    @classmethod
    def of_pairs(cls, pairs: Any) -> "ArrayEdges":
        """The edges of an array [E, 2] or [2, E]; of one that is 2 by 2, rows are the edges."""
        array = np.asarray(pairs)
        if array.ndim != 2 or 2 not in array.shape:
            raise GraphError(f"edges have shape {list(array.shape)}. Edges are of shape [edges, 2] or [2, edges].")
        source, destination = array.T if array.shape[1] == 2 else array
        return cls(source, destination)

    def __iter__(self) -> Iterator[EdgeBatch]:
        """The batches in order."""
        for begin in range(0, self.num_edges, self._batch):
            end = min(begin + self._batch, self.num_edges)
            source = np.asarray(self._source[begin:end], dtype=np.int64)
            destination = np.asarray(self._destination[begin:end], dtype=np.int64)
            weight = None if self._weight is None else canonical.numbers(self._weight[begin:end], "edge_weight")
            yield EdgeBatch(source, destination, weight, 16 * end, counted(begin))
