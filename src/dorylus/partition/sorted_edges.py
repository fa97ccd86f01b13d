"""Edges brought into another order through scratch files: in the order of some vertices, or turned round.

What is sorted need not fit into memory, and neither need the result: it lies in scratch, and comes in block by block.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from dorylus.graph.adjacency import inverse
from dorylus.graph.arrays import AnyArray, OffsetArray
from dorylus.kernels import EdgeSort
from dorylus.paging import PagedArray, Pager
from dorylus.partition.paged_edges import Bounds, PagedCsr, even_bounds
from dorylus.partition.shard import Ids

SORTED = 1 << 18  # edges that the sort hands on together


@dataclass(frozen=True)
class Sorting:
    """Where edges are sorted, and what that may take. ``block_edges`` are in memory of the result at a time."""

    folder: str | PathLike[str]
    pager: Pager
    sort_bytes: int
    merge_bytes: int
    block_edges: int

    def in_order(self, edges: PagedCsr, members: Ids, starts: OffsetArray) -> PagedCsr:
        """The rows of ``members``, one after the other, unweighted; those of a cluster stay in one block."""
        with EdgeSort(self.folder, self.sort_bytes, coalesce=False) as sort:
            place = inverse(members, members.size)
            for _, begin, (near, indices, _) in edges.blocks():
                sort.add(np.repeat(place[begin : begin + near.size - 1], np.diff(near)), indices)
            del place
            indptr = np.zeros(members.size + 1, np.int64)
            np.cumsum((edges.csr[0][1:] - edges.csr[0][:-1])[members], out=indptr[1:])
            bounds = starts[even_bounds(indptr[starts], self.block_edges)]
            return self._written(sort, indptr, bounds, weighted=False)

    def turned(self, edges: PagedCsr) -> PagedCsr:
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
        """The scratch of sorted edges may be used again."""
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
    """Arrays that are filled from the beginning; a span that is full goes to its file."""

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
