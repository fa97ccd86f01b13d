"""The arrangement of a whole graph under a memory limit: in its own order, its edges and features in files."""

import numpy as np
from numpy.typing import NDArray

from dorylus.graph import Adjacency, Graph, SparseFeatures
from dorylus.graph.arrays import AnyArray, FloatArray
from dorylus.graph.degrees import Degrees, Norm
from dorylus.graph.half import widened
from dorylus.paging import PagedArray, Pager
from dorylus.partition.arrangement import Arrangement
from dorylus.partition.cut import Cut
from dorylus.partition.paged_edges import PagedCsr, PagedDegrees, Scale, paged_edges, paged_out_edges, with_loops
from dorylus.partition.shard import Ids, Shard
from dorylus.pipeline import Reads


class PagedArrangement(Arrangement):
    """The only server's shard. ``features`` are paged where they are dense and lie in a file of this machine."""

    def __init__(self, graph: Graph, cut: Cut, pager: Pager) -> None:
        self._pager, self._bounds = pager, cut.layouts[0].bounds
        self._in_edges = paged_edges(graph, self._bounds, pager)
        self._degrees = PagedDegrees.of(self._in_edges, pager)
        super().__init__(_shard(graph, self._in_edges, cut.layouts[0].order), cut, graph)
        self.features = self._paged_features(graph)

    def reads(self) -> Reads:
        """Every interval gathers from every other: to know better would take a look at every edge."""
        return Reads.complete(len(self.mine))

    def dense_features(self, *, ghosts: bool = False, keep: bool = True) -> AnyArray:
        """The features of all vertices; where they are paged, only rows at hand are there."""
        if self.features is None:
            return super().dense_features(ghosts=ghosts, keep=keep)
        return self.features.array

    def feature_rows(self, begin: int, end: int, columns: slice = slice(None)) -> FloatArray:
        """Some columns of some rows of the features, dense and float32; of paged ones, rows that are at hand."""
        features = self.graph.features
        if isinstance(features, SparseFeatures):
            return features.to_dense(np.arange(begin, end, dtype=np.int32))[:, columns]
        return widened(self.dense_features()[begin:end, columns])

    def _adjacency(self, norm: Norm, self_loops: bool) -> Adjacency:
        scales = self._all_scales(norm, self_loops)  # first: it reads the offsets, which are let go of afterwards
        return self._scaled(self._paged(self_loops, out=False), *scales)

    def _transpose(self, norm: Norm, self_loops: bool, level: int | None) -> Adjacency:
        if not self.shard.directed and norm != "mean":
            return self.adjacency(norm, self_loops)
        row_scale, col_scale = self._all_scales(norm, self_loops)
        return self._scaled(self._paged(self_loops, out=self.shard.directed), col_scale, row_scale)

    def _paged(self, self_loops: bool, *, out: bool) -> PagedCsr:
        return self._once(("paged", self_loops, out), lambda: self._make_paged(self_loops, out))

    def _make_paged(self, self_loops: bool, out: bool) -> PagedCsr:
        assert isinstance(self.graph, Graph)
        edges = paged_out_edges(self.graph, self._bounds, self._pager) if out else self._in_edges
        what = "out-edges" if out else "edges"
        return with_loops(edges, self._degrees.loops, self._pager, what=what) if self_loops else edges

    def _all_scales(self, norm: Norm, self_loops: bool) -> tuple[Scale, Scale]:
        return self._once(("scales", norm, self_loops), lambda: self._degrees.scales(norm, self_loops))

    def _scaled(self, edges: PagedCsr, row_scale: Scale, col_scale: Scale) -> Adjacency:
        return Adjacency(*edges.csr, row_scale, col_scale, edges.pages)

    def _needed(self, level: int | None) -> NDArray[np.bool_]:
        return np.ones(1, np.bool_)

    def _paged_features(self, graph: Graph) -> PagedArray | None:
        if graph.sparse_features or graph.files is None or not graph.num_features:
            return None
        assert isinstance(graph.features, np.ndarray)
        return self._pager.stored(graph.files.block_file("features"), graph.features, self._bounds)


def _shard(graph: Graph, edges: PagedCsr, everyone: Ids) -> Shard:
    """A shard that owns every vertex. Who asks for degrees asks for all of them, interval by interval."""
    nobody, owners = np.zeros(0, np.int32), np.zeros(2, np.int64)
    degrees = Degrees(np.zeros(0, np.int64), None, np.zeros(0, np.bool_))
    sizes = (0, 1, graph.num_vertices, graph.directed)
    return Shard(*sizes, everyone, nobody, nobody, owners, owners, degrees, degrees, edges.csr)
