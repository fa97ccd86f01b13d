"""The local shard of a whole graph under a memory limit: in its own order, its edges and features in files.

Edges are read from files into memory interval by interval.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import native
from dorylus.errors import DataError
from dorylus.graph import (
    Adjacency,
    AnyArray,
    Degrees,
    FolderFiles,
    Graph,
    Norm,
    check_offsets,
    drop_pages,
    open_out_edges,
    weight_sums,
)
from dorylus.paging import PagedArray, Pager
from dorylus.partition.local_shard import LocalShard
from dorylus.partition.partition_plan import PartitionPlan
from dorylus.partition.shard import Csr, Ids, Shard
from dorylus.pipeline import Reads
from dorylus.progress import ProgressStage

Bounds = NDArray[np.int64]
Scale = NDArray[np.float32] | None


@dataclass(frozen=True, eq=False)
class PagedCsr:
    """Rows by interval. Arrays of ``csr`` in files are also in ``pages``; to be read, they must be in memory."""

    csr: Csr
    bounds: Bounds
    pages: tuple[PagedArray, ...]

    @property
    def edge_bytes(self) -> int:
        """The bytes of one edge."""
        return 4 if self.csr[2] is None else 8

    def stage(self, name: str, pager: Pager | None) -> ProgressStage | None:
        """The progress of a pass over all edges that begins now; None without a pager."""
        return None if pager is None else pager.stage(name, int(self.csr[0][-1]) * self.edge_bytes)

    def blocks(self, stage: ProgressStage | None = None, *, backwards: bool = False) -> Iterator[tuple[int, int, Csr]]:
        """(interval, first row, its rows, offsets from 0), one interval after the other; adds their bytes to the stage.

        ``backwards``: the last first.
        """
        indptr, indices, weight = self.csr
        spans, step = list(enumerate(pairwise(self.bounds.tolist()))), -1 if backwards else 1
        for interval, (begin, end) in spans[::step]:
            with interval_in_memory(self.pages, interval, step):
                first, last = int(indptr[begin]), int(indptr[end])
                weights = None if weight is None else weight[first:last]
                yield interval, begin, (indptr[begin : end + 1] - first, indices[first:last], weights)
            if stage is not None:
                stage.add((last - first) * self.edge_bytes)


@contextmanager
def interval_in_memory(pages: tuple[PagedArray, ...], interval: int, step: int = 1) -> Iterator[None]:
    """Hold an interval's part of some arrays in memory; the part of the interval ``step`` further is read ahead."""
    for array in pages:
        array.acquire(interval)
        array.ahead(interval + step)
    try:
        yield
    finally:
        for array in pages:
            array.release(interval, leave=True)


def even_bounds(indptr: NDArray[np.int64], most: int) -> Bounds:
    """Bounds of rows, as few as there can be with so many edges at most between two; a longer row is alone."""
    bounds = [0]
    while bounds[-1] < indptr.size - 1:
        first = bounds[-1]
        bounds.append(max(first + 1, int(np.searchsorted(indptr, indptr[first] + most, side="right")) - 1))
    return np.array(bounds, np.int64)


def paged_edges(graph: Graph, bounds: Bounds, pager: Pager) -> PagedCsr:
    """The in-edges of a graph: from the files of its store where it has one here, else as they are in memory."""
    csr = graph.indptr, graph.indices, graph.edge_weight
    if graph.files is None:
        return PagedCsr(csr, bounds, ())
    for array in csr[1:]:  # drop what opening the store left in the page cache: later reads bypass it
        if array is not None:
            drop_pages(array)
    return stored_edges(csr, graph.files, ("indices", "edge_weight"), bounds, pager)


def stored_edges(csr: Csr, files: FolderFiles, names: tuple[str, str], bounds: Bounds, pager: Pager) -> PagedCsr:
    """Edges that lie in a store under these names, mapped as ``csr``."""
    indptr, indices, weight = csr
    cuts = indptr[bounds]
    columns = pager.stored(files.block_file(names[0]), indices, cuts)
    if weight is None:
        return PagedCsr((indptr, columns.array, None), bounds, (columns,))
    weights = pager.stored(files.block_file(names[1]), weight, cuts)
    return PagedCsr((indptr, columns.array, weights.array), bounds, (columns, weights))


@dataclass(frozen=True, eq=False)
class PagedDegrees:
    """The inputs of normalisation for every vertex beside its number of edges, computed interval by interval."""

    edges: PagedCsr
    loops: NDArray[np.bool_]
    weights: NDArray[np.float64] | None

    @classmethod
    def of(cls, edges: PagedCsr, pager: Pager | None = None) -> "PagedDegrees":
        """Computed from the edges, one interval after the other."""
        indptr, _, weight = edges.csr
        loops = np.empty(indptr.size - 1, np.bool_)
        weights = None if weight is None else np.empty(indptr.size - 1, np.float64)
        for _, begin, (near, indices, values) in edges.blocks(edges.stage("reading the edges", pager)):
            rows = slice(begin, begin + near.size - 1)
            loops[rows] = native.csr_loops(near, indices, first_row=begin)
            if weights is not None and values is not None:
                weights[rows] = weight_sums(near, values)
        return cls(edges, loops, weights)

    def scales(self, norm: Norm, self_loops: bool) -> tuple[Scale, Scale]:
        """(scale of each vertex as a row, as a column) in the adjacency matrix; None counts as ones."""
        if norm == "none":
            return None, None
        rows = np.empty(self.loops.size, np.float32)
        for begin, end in pairwise(self.edges.bounds.tolist()):
            weights = None if self.weights is None else self.weights[begin:end]
            some = Degrees(np.diff(self.edges.csr[0][begin : end + 1]), weights, self.loops[begin:end])
            scale, _ = some.scales(norm, self_loops, np.arange(begin, end, dtype=np.int32))
            rows[begin:end] = 1.0 if scale is None else scale
        return rows, rows if norm == "symmetric" else None


def with_loops(edges: PagedCsr, loops: NDArray[np.bool_], pager: Pager, *, what: str = "edges") -> PagedCsr:
    """The same edges and a self loop for every vertex that has none, written to scratch."""
    indptr, _, weight = edges.csr
    longer = np.empty_like(indptr)
    longer[0] = 0
    np.cumsum(~loops, out=longer[1:])
    longer += indptr
    drop_pages(indptr)
    cuts, size = longer[edges.bounds], (int(longer[-1]),)
    columns = pager.scratch(size, np.int32, cuts)
    pages: tuple[PagedArray, ...] = (columns,)
    if weight is not None:
        pages = (columns, pager.scratch(size, np.float32, cuts))
    stage = edges.stage(f"copying the {what}, with self loops", pager)
    for interval, begin, (near, indices, values) in edges.blocks(stage):
        made = native.csr_with_loops(near, indices, values=values, first_row=begin)
        rows = slice(int(cuts[interval]), int(cuts[interval + 1]))
        for page, content in zip(pages, made[1:], strict=False):
            page.acquire(interval)
            page.array[rows] = content
            page.wrote(interval)
            page.release(interval, leave=True)
    return PagedCsr((longer, columns.array, None if weight is None else pages[1].array), edges.bounds, pages)


def check_out_edges(edges: PagedCsr, pager: Pager | None = None) -> None:
    """Refuse edges that name no vertex: kernels would read outside their arrays."""
    check_offsets(edges.csr[0], edges.csr[1].size, "out.indptr")
    for _, begin, (near, indices, _) in edges.blocks(edges.stage("checking the out-edges", pager)):
        if indices.size and (indices.min() < 0 or indices.max() >= edges.csr[0].size - 1):
            raise DataError(
                f"the out-edges of vertices {begin} to {begin + near.size - 2} name vertices that do not exist: "
                "the store is damaged. Ingest it again, or copy it anew."
            )


def paged_out_edges(graph: Graph, bounds: Bounds, pager: Pager) -> PagedCsr:
    """The out-edges of a directed graph: from its store where that has them, else transposed in memory."""
    if graph.files is not None:
        out = open_out_edges(graph.files.folder, graph.files)
        if out is not None:
            csr = out.indptr, out.indices, out.edge_weight
            edges = stored_edges(csr, graph.files, ("out.indices", "out.edge_weight"), bounds, pager)
            check_out_edges(edges, pager)
            return edges
    transposed = native.csr_transpose(graph.indptr, graph.indices, graph.num_vertices, values=graph.edge_weight)
    drop_pages(graph.indices)
    return PagedCsr(transposed, bounds, ())


class PagedLocalShard(LocalShard):
    """The only server's shard. Features are paged where they are dense and lie in a file of this machine."""

    def __init__(self, graph: Graph, plan: PartitionPlan, pager: Pager) -> None:
        self._pager, self._bounds = pager, plan.layouts[0].bounds
        self._in_edges = paged_edges(graph, self._bounds, pager)
        self._degrees = PagedDegrees.of(self._in_edges, pager)
        super().__init__(_shard(graph, self._in_edges, plan.layouts[0].order), plan, graph)
        self.paged_features = self._page_features(graph)

    def reads(self) -> Reads:
        """Assume that every interval gathers from every other: the exact sets would need a pass over all edges."""
        return Reads.complete(len(self.mine))

    def dense_features(self, *, ghosts: bool = False, keep: bool = True) -> AnyArray:
        """The features of all vertices; where they are paged, only the rows in memory are valid."""
        if self.paged_features is None:
            return super().dense_features(ghosts=ghosts, keep=keep)
        return self.paged_features.array

    def _adjacency(self, norm: Norm, self_loops: bool) -> Adjacency:
        scales = self._all_scales(norm, self_loops)  # first: it needs the offsets, which are released next
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

    def _page_features(self, graph: Graph) -> PagedArray | None:
        if graph.sparse_features or graph.files is None or not graph.num_features:
            return None
        assert isinstance(graph.features, np.ndarray)
        return self._pager.stored(graph.files.block_file("features"), graph.features, self._bounds)


def _shard(graph: Graph, edges: PagedCsr, ids: Ids) -> Shard:
    """A shard that owns every vertex. Its degrees are left out: :class:`PagedDegrees` has them all."""
    no_ghosts, owners = np.zeros(0, np.int32), np.zeros(2, np.int64)
    degrees = Degrees(np.zeros(0, np.int64), None, np.zeros(0, np.bool_))
    sizes = (0, 1, graph.num_vertices, graph.directed)
    return Shard(*sizes, ids, no_ghosts, no_ghosts, owners, owners, degrees, degrees, edges.csr)
