"""A shard: the part of a graph one graph server owns, in the order its tasks want it."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dorylus.graph import Adjacency, Graph, SparseFeatures, adjacency
from dorylus.partition.layout import Layout
from dorylus.pipeline import Reads

T = TypeVar("T")


class Shard:
    """The vertices of one server, renumbered by a layout; adjacencies are made when first asked for and kept."""

    def __init__(self, graph: Graph, layout: Layout) -> None:
        self.graph = graph
        self.layout = layout
        self.ids = layout.order
        self._in_order = bool(np.array_equal(layout.order, np.arange(graph.num_vertices, dtype=np.int32)))
        self._made: dict[object, object] = {}

    @property
    def num_vertices(self) -> int:
        """How many vertices the shard owns."""
        return self.graph.num_vertices

    def adjacency(self, norm: str, self_loops: bool) -> Adjacency:
        """The shard's in-edges, weighted as asked."""
        order = None if self._in_order else self.layout.order
        make = lambda: adjacency(self.graph, order=order, norm=norm, self_loops=self_loops)  # type: ignore[arg-type]  # noqa: E731
        return self._once(("adjacency", norm, self_loops), make)

    def transpose(self, norm: str, self_loops: bool, level: int | None = None) -> Adjacency:
        """The same edges from their sources; with a level, only those that end in a row needed there."""
        forward = self.adjacency(norm, self_loops)
        if level is None or self.layout.num_rows(level) == self.num_vertices:
            return self._once(("transpose", norm, self_loops), forward.transpose)
        make = lambda: forward.transpose(keep_rows=self._needed(level))  # noqa: E731
        return self._once(("transpose", norm, self_loops, level), make)

    def _needed(self, level: int) -> NDArray[np.bool_]:
        rows = np.zeros(self.num_vertices, np.bool_)
        for interval in range(self.layout.num_intervals):
            rows[slice(*self.layout.rows(level, interval))] = True
        return rows

    def dense_features(self) -> NDArray[np.float32]:
        """The features in the shard's order, dense."""
        features = self.graph.features
        if isinstance(features, SparseFeatures):
            return self._once("dense", lambda: features.to_dense(self.layout.order))
        if self._in_order:
            return features
        return self._once("dense", lambda: features[self.layout.order])

    def sparse_features(self) -> SparseFeatures:
        """The features in the shard's order, sparse as the graph has them."""
        features = self.graph.features
        assert isinstance(features, SparseFeatures)
        return features if self._in_order else self._once("sparse", lambda: features.permute(self.layout.order))

    def forget_features(self) -> None:
        """Drop the reordered features: nothing will ask for them again."""
        self._made.pop("dense", None)

    def reads(self) -> Reads:
        """Which intervals each interval gathers from, whatever weights its edges carry."""
        made = [value for key, value in self._made.items() if isinstance(key, tuple) and key[0] == "adjacency"]
        edges = made[0] if made else self.adjacency("none", False)
        assert isinstance(edges, Adjacency)
        intervals = self.layout.num_intervals
        place = np.repeat(np.arange(intervals, dtype=np.int32), np.diff(self.layout.bounds))
        sources = []
        for begin, end in zip(self.layout.bounds[:-1], self.layout.bounds[1:], strict=True):
            read = place[edges.indices[edges.indptr[begin] : edges.indptr[end]]]
            sources.append(frozenset(np.flatnonzero(np.bincount(read, minlength=intervals)).tolist()))
        return Reads.of(sources)

    def _once(self, key: object, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]  # type: ignore[return-value]
