"""Edges under a memory limit: they lie in files, and come in as their interval is worked on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dorylus import kernels
from dorylus.errors import DataError
from dorylus.graph import Graph, validate
from dorylus.graph.degrees import Degrees, Norm, weight_sums
from dorylus.graph.folder_files import FolderFiles
from dorylus.graph.mapped import let_go
from dorylus.graph.store import open_out_edges
from dorylus.paging import PagedArray, Pager, Stage
from dorylus.partition.shard import Csr

Bounds = NDArray[np.int64]
Scale = NDArray[np.float32] | None


@dataclass(frozen=True, eq=False)
class PagedCsr:
    """Rows by interval. What of ``csr`` lies in files is also in ``pages``; to be read, it has to be at hand."""

    csr: Csr
    bounds: Bounds
    pages: tuple[PagedArray, ...]

    @property
    def edge_bytes(self) -> int:
        """The bytes of one edge."""
        return 4 if self.csr[2] is None else 8

    def stage(self, name: str, pager: Pager | None) -> Stage | None:
        """A pass over all edges that begins now, where there is a pager to tell of it."""
        return None if pager is None else pager.stage(name, int(self.csr[0][-1]) * self.edge_bytes)

    def blocks(self, stage: Stage | None = None, *, backwards: bool = False) -> Iterator[tuple[int, int, Csr]]:
        """(interval, first row, its rows, offsets from 0), one interval after the other; a stage is told of them.

        ``backwards``: the last first.
        """
        indptr, indices, weight = self.csr
        spans, step = list(enumerate(pairwise(self.bounds.tolist()))), -1 if backwards else 1
        for interval, (begin, end) in spans[::step]:
            with at_hand(self.pages, interval, step):
                first, last = int(indptr[begin]), int(indptr[end])
                weights = None if weight is None else weight[first:last]
                yield interval, begin, (indptr[begin : end + 1] - first, indices[first:last], weights)
            if stage is not None:
                stage.add((last - first) * self.edge_bytes)


@contextmanager
def at_hand(pages: tuple[PagedArray, ...], interval: int, step: int = 1) -> Iterator[None]:
    """Have an interval's part of some arrays in memory for a while; that of the next one, so far on, is on its way."""
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
    for array in csr[1:]:  # what opening the store has left in the page cache: it is read past that from now on
        if array is not None:
            let_go(array)
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
    """What normalisation needs to know of every vertex beside its number of edges, found interval by interval."""

    edges: PagedCsr
    loops: NDArray[np.bool_]
    weights: NDArray[np.float64] | None

    @classmethod
    def of(cls, edges: PagedCsr, pager: Pager | None = None) -> "PagedDegrees":
        """By a look at the edges of one interval after the other."""
        indptr, _, weight = edges.csr
        loops = np.empty(indptr.size - 1, np.bool_)
        weights = None if weight is None else np.empty(indptr.size - 1, np.float64)
        for _, begin, (near, indices, values) in edges.blocks(edges.stage("reading the edges", pager)):
            rows = slice(begin, begin + near.size - 1)
            loops[rows] = kernels.csr_loops(near, indices, first_row=begin)
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
    let_go(indptr)
    cuts, size = longer[edges.bounds], (int(longer[-1]),)
    columns = pager.scratch(size, np.int32, cuts)
    pages: tuple[PagedArray, ...] = (columns,)
    if weight is not None:
        pages = (columns, pager.scratch(size, np.float32, cuts))
    stage = edges.stage(f"copying the {what}, with self loops", pager)
    for interval, begin, (near, indices, values) in edges.blocks(stage):
        made = kernels.csr_with_loops(near, indices, values=values, first_row=begin)
        rows = slice(int(cuts[interval]), int(cuts[interval + 1]))
        for page, content in zip(pages, made[1:], strict=False):
            page.acquire(interval)
            page.array[rows] = content
            page.wrote(interval)
            page.release(interval, leave=True)
    return PagedCsr((longer, columns.array, None if weight is None else pages[1].array), edges.bounds, pages)


def check_out_edges(edges: PagedCsr, pager: Pager | None = None) -> None:
    """Refuse edges that name no vertex: kernels would read outside their arrays."""
    validate.check_offsets(edges.csr[0], edges.csr[1].size, "out.indptr")
    for _, begin, (near, indices, _) in edges.blocks(edges.stage("checking the out-edges", pager)):
        if indices.size and (indices.min() < 0 or indices.max() >= edges.csr[0].size - 1):
            raise DataError(
                f"the out-edges of vertices {begin} to {begin + near.size - 2} name vertices that the graph has not: "
                "the store is damaged. Ingest it again, or copy it anew."
            )


def paged_out_edges(graph: Graph, bounds: Bounds, pager: Pager) -> PagedCsr:
    """The out-edges of a directed graph: from its store where that has them, else turned round in memory."""
    if graph.files is not None:
        out = open_out_edges(graph.files.folder, graph.files)
        if out is not None:
            csr = out.indptr, out.indices, out.edge_weight
            edges = stored_edges(csr, graph.files, ("out.indices", "out.edge_weight"), bounds, pager)
            check_out_edges(edges, pager)
            return edges
    turned = kernels.csr_transpose(graph.indptr, graph.indices, graph.num_vertices, values=graph.edge_weight)
    let_go(graph.indices)
    return PagedCsr(turned, bounds, ())
