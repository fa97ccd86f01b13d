"""Reading the edges of a graph in blocks of rows: from memory or, under a limit, from files.

Under a limit edges are also sorted through scratch files, into the order of some vertices or transposed
(:class:`EdgeSorter`). :class:`CutEdges` holds the result of one pass over the edges: the ghosts of several parts.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import EdgeSort, native
from dorylus.errors import ConfigError
from dorylus.graph import (
    OUT_EDGES,
    Address,
    AnyArray,
    BoolArray,
    FolderFiles,
    Graph,
    IdArray,
    OffsetArray,
    OutEdges,
    disk_folder,
    drop_pages,
    file_system_in_memory,
    inverse,
    is_remote,
    not_on_disk,
    open_out_edges,
    preload_pages,
)
from dorylus.paging import PagedArray, Pager
from dorylus.partition.limit import PartitionShares
from dorylus.partition.paged_shard import Bounds, PagedCsr, check_out_edges, even_bounds, paged_edges, stored_edges
from dorylus.partition.shard import Ids
from dorylus.progress import ReportStage, StageProgress, silent

SORTED = 1 << 18  # edges in each block that the sort returns


@dataclass(frozen=True)
class EdgeSorter:
    """Sorts edges through a scratch folder; at most ``block_edges`` of the result are in memory at a time."""

    folder: str | PathLike[str]
    pager: Pager
    sort_bytes: int
    merge_bytes: int
    block_edges: int

    def in_order(self, edges: PagedCsr, members: Ids, starts: OffsetArray) -> PagedCsr:
        """The rows of ``members``, one after the other, unweighted; the rows of a cluster are in one block."""
        with EdgeSort(self.folder, self.sort_bytes, coalesce=False) as sort:
            place = inverse(members, members.size)
            for _, begin, (near, indices, _) in edges.blocks():
                sort.add(np.repeat(place[begin : begin + near.size - 1], np.diff(near)), indices)
            del place
            indptr = np.zeros(members.size + 1, np.int64)
            np.cumsum((edges.csr[0][1:] - edges.csr[0][:-1])[members], out=indptr[1:])
            bounds = starts[even_bounds(indptr[starts], self.block_edges)]
            return self._written(sort, indptr, bounds, weighted=False)

    def transposed(self, edges: PagedCsr) -> PagedCsr:
        """Row u lists the rows that have column u, ascending."""
        size, weighted = edges.csr[0].size - 1, edges.csr[2] is not None
        indptr = np.zeros(size + 1, np.int64)
        with EdgeSort(self.folder, self.sort_bytes, weighted=weighted, coalesce=False) as sort:
            for _, begin, (near, indices, weight) in edges.blocks():
                rows = np.arange(begin, begin + near.size - 1, dtype=np.int32)
                sort.add(indices, np.repeat(rows, np.diff(near)), weight)
                indptr[1:] += np.bincount(indices, minlength=size)
            np.cumsum(indptr, out=indptr)
            return self._written(sort, indptr, even_bounds(indptr, self.block_edges), weighted=weighted)

    def give_back(self, edges: PagedCsr) -> None:
        """Release the scratch space of sorted edges for reuse."""
        for page in edges.pages:
            self.pager.give_back(page)

    def _written(self, sort: EdgeSort, indptr: OffsetArray, bounds: Bounds, *, weighted: bool) -> PagedCsr:
        cuts, size = indptr[bounds], (int(indptr[-1]),)
        pages: tuple[PagedArray, ...] = (self.pager.scratch(size, np.int32, cuts),)
        if weighted:
            pages = (*pages, self.pager.scratch(size, np.float32, cuts))
        spans = _Spans(pages, cuts)
        for _, columns, weight in sort.sorted(self.merge_bytes, SORTED):
            spans.write((columns,) if weight is None else (columns, weight))
        return PagedCsr((indptr, pages[0].array, pages[1].array if weighted else None), bounds, pages)


@dataclass
class _Spans:
    """Arrays that are filled from the beginning; a full span is written to its file."""

    pages: tuple[PagedArray, ...]
    cuts: NDArray[np.int64]
    done: int = 0

    def write(self, contents: tuple[AnyArray, ...]) -> None:
        """Append to each array."""
        for begin, end, span in self._pieces(len(contents[0])):
            for page, content in zip(self.pages, contents, strict=True):
                if begin == self.cuts[span]:
                    page.acquire(span)
                page.array[begin:end] = content[begin - self.done : end - self.done]
                page.wrote(span)
                if end == self.cuts[span + 1]:
                    page.release(span, leave=True)
        self.done += len(contents[0])

    def _pieces(self, count: int) -> Iterator[tuple[int, int, int]]:
        begin, last = self.done, self.done + count
        while begin < last:
            span = int(np.searchsorted(self.cuts, begin, side="right")) - 1
            end = min(last, int(self.cuts[span + 1]))
            yield begin, end, span
            begin = end


class EdgeReader:
    """Reads the edges of a graph in blocks. With a ``sorter``, under a limit, no edges stay in memory."""

    def __init__(self, graph: Graph, shares: PartitionShares, sorter: EdgeSorter | None = None) -> None:
        self.graph, self._shares, self._sorter = graph, shares, sorter

    @property
    def in_any_order(self) -> bool:
        """Whether the graph's rows can be read in any order."""
        return self._shares.in_any_order

    @cached_property
    def in_edges(self) -> PagedCsr:
        """The in-edges of every vertex."""
        bounds = even_bounds(self.graph.indptr, self._shares.block_edges)
        if self._sorter is not None:
            return paged_edges(self.graph, bounds, self._sorter.pager)
        return PagedCsr((self.graph.indptr, self.graph.indices, self.graph.edge_weight), bounds, ())

    @cached_property
    def links(self) -> PagedCsr:
        """The in-edges without their weights."""
        edges = self.in_edges
        return PagedCsr((*edges.csr[:2], None), edges.bounds, edges.pages[:1])

    @cached_property
    def out_edges(self) -> PagedCsr:
        """The out-edges of every vertex of a directed graph: those of its store, or its in-edges transposed."""
        graph = self.graph
        if graph.files is not None:
            stored = open_out_edges(graph.files.folder, graph.files)
            if stored is not None:
                return self._stored_out_edges(graph.files, stored)
        if self._sorter is not None:
            return self._sorter.transposed(self.in_edges)
        transposed = native.csr_transpose(graph.indptr, graph.indices, graph.num_vertices, values=graph.edge_weight)
        return PagedCsr(transposed, even_bounds(transposed[0], self._shares.block_edges), ())

    def _stored_out_edges(self, files: FolderFiles, stored: OutEdges) -> PagedCsr:
        csr, bounds = (
            (stored.indptr, stored.indices, stored.edge_weight),
            even_bounds(stored.indptr, self._shares.block_edges),
        )
        if self._sorter is None:
            edges = PagedCsr(csr, bounds, ())
        else:
            edges = stored_edges(csr, files, (OUT_EDGES[1], OUT_EDGES[2]), bounds, self._sorter.pager)
        check_out_edges(edges)
        return edges

    @contextmanager
    def in_order(self, members: Ids, starts: OffsetArray) -> Iterator[PagedCsr]:
        """The in-edges of ``members``, a row each; cluster c, ``members[starts[c]:starts[c + 1]]``, is in one block."""
        assert self._sorter is not None
        edges = self._sorter.in_order(self.in_edges, members, starts)
        try:
            yield edges
        finally:
            self._sorter.give_back(edges)


@contextmanager
def read_edges(graph: Graph, shares: PartitionShares, scratch: str | PathLike[str]) -> Iterator[EdgeReader]:
    """A reader of a graph's edges within the given shares of memory; unnamed scratch files vanish at the end."""
    graph.check_files()
    if not shares.limited:
        yield EdgeReader(graph, shares)
        return
    kind = file_system_in_memory(scratch)
    if kind is not None:
        raise ConfigError(not_on_disk(scratch, kind))
    pager = Pager(scratch)
    try:
        if shares.in_any_order:
            preload_pages(graph.indices)
        merge, block = shares.merge_bytes, shares.block_edges
        yield EdgeReader(graph, shares, EdgeSorter(scratch, pager, shares.sort_bytes, merge, block))
    finally:
        pager.close()
        drop_graph_pages(graph)


def drop_graph_pages(graph: Graph) -> None:
    """Drop all pages of a graph's mapped arrays from memory."""
    labels = () if graph.labels is None else (graph.labels,)
    weight = () if graph.edge_weight is None else (graph.edge_weight,)
    for array in (graph.indptr, graph.indices, *weight, *labels):
        drop_pages(array)


def scratch_beside(graph: Graph, out: Address | None = None) -> Path:
    """The folder for scratch files: beside the output, else beside the graph's store, else that for temporary files.

    A folder that is in memory and not on a disk is skipped.
    """
    beside: list[Path] = []
    for place in (out, graph.store):
        if place is not None and not is_remote(place):
            folder = Path(place).absolute().parent
            while not folder.exists():
                folder = folder.parent
            beside.append(folder)
    return Path(disk_folder(*beside) or (beside[0] if beside else tempfile.gettempdir()))


PARTS_PER_PASS = 32  # one bit each
COUNT_STEP = 1 << 22  # vertices counted together


@dataclass(frozen=True, eq=False)
class CutEdges:
    """For each vertex, which of ``PARTS_PER_PASS`` parts from ``first`` on have edges from it, or edges to it.

    A bit for each part, not set for the part that owns the vertex. ``num_cut`` counts the edges between any two parts.
    """

    first: int
    num_cut: int
    readers: IdArray
    writers: IdArray | None  # None: not counted

    @classmethod
    def of(
        cls, reader: EdgeReader, parts: IdArray, first: int, tell: ReportStage = silent, *, writers: bool = False
    ) -> "CutEdges":
        """The result of a pass over the in-edges; needs 4 or 8 bytes per vertex."""
        read_by = np.zeros(parts.size, np.int32)
        written_by = np.zeros(parts.size, np.int32) if writers else None
        num_cut = done = 0
        for _, begin, (near, indices, _) in reader.links.blocks():
            bits = read_by, written_by
            num_cut += native.partition_across(near, indices, parts, *bits, first_part=first, first_row=begin)
            done += indices.size
            tell(StageProgress("counting cut edges", done, reader.graph.num_edges, "edges"))
        return cls(first, num_cut, read_by, written_by)

    def num_in_ghosts(self) -> int:
        """How many in-ghosts these parts have."""
        return _count(self.readers)

    def num_out_ghosts(self) -> int:
        """How many out-ghosts these parts have."""
        return 0 if self.writers is None else _count(self.writers)

    def sources(self, part: int) -> BoolArray:
        """The vertices of other parts with an edge to this part."""
        return _has(self.readers, part - self.first)

    def targets(self, part: int) -> BoolArray:
        """The vertices of other parts with an edge from this part."""
        assert self.writers is not None
        return _has(self.writers, part - self.first)


def _count(bits: IdArray) -> int:
    blocks = (bits[begin : begin + COUNT_STEP].view(np.uint32) for begin in range(0, bits.size, COUNT_STEP))
    return sum(int(np.bitwise_count(block).sum(dtype=np.int64)) for block in blocks)


def _has(bits: IdArray, number: int) -> BoolArray:
    has: BoolArray = (bits & np.uint32(1 << number).astype(np.int32)) != 0
    return has
