"""How the edges of a graph are read: in blocks of rows, as they are at hand or, under a limit, from files."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from os import PathLike
from pathlib import Path

from dorylus import kernels
from dorylus.errors import ConfigError
from dorylus.graph import Graph
from dorylus.graph.arrays import OffsetArray
from dorylus.graph.folder_files import FolderFiles
from dorylus.graph.mapped import bring_in, let_go
from dorylus.graph.places import Address, disk_folder, file_system_in_memory, is_elsewhere, not_on_a_disk
from dorylus.graph.store import OutEdges, open_out_edges
from dorylus.graph.store_form import OUT_EDGES
from dorylus.paging import Pager
from dorylus.partition.limit import Shares
from dorylus.partition.paged_edges import PagedCsr, check_out_edges, even_bounds, paged_edges, stored_edges
from dorylus.partition.shard import Ids
from dorylus.partition.sorted_edges import Sorting


class Reading:
    """A graph whose edges are read in blocks. ``sorting`` is there under a limit, and then nothing stays in memory."""

    def __init__(self, graph: Graph, shares: Shares, sorting: Sorting | None = None) -> None:
        self.graph, self._shares, self._sorting = graph, shares, sorting

    @property
    def in_any_order(self) -> bool:
        """Whether every row may be asked for at any time, of the graph itself."""
        return self._shares.in_any_order

    @cached_property
    def in_edges(self) -> PagedCsr:
        """The in-edges of every vertex."""
        bounds = even_bounds(self.graph.indptr, self._shares.block_edges)
        if self._sorting is not None:
            return paged_edges(self.graph, bounds, self._sorting.pager)
        return PagedCsr((self.graph.indptr, self.graph.indices, self.graph.edge_weight), bounds, ())

    @cached_property
    def links(self) -> PagedCsr:
        """The in-edges without their weights."""
        edges = self.in_edges
        return PagedCsr((*edges.csr[:2], None), edges.bounds, edges.pages[:1])

    @cached_property
    def out_edges(self) -> PagedCsr:
        """The out-edges of every vertex of a directed graph: those of its store, or made by turning its in-edges."""
        graph = self.graph
        if graph.files is not None:
            found = open_out_edges(graph.files.folder, graph.files)
            if found is not None:
                return self._stored_out_edges(graph.files, found)
        if self._sorting is not None:
            return self._sorting.turned(self.in_edges)
        turned = kernels.csr_transpose(graph.indptr, graph.indices, graph.num_vertices, values=graph.edge_weight)
        return PagedCsr(turned, even_bounds(turned[0], self._shares.block_edges), ())

    def _stored_out_edges(self, files: FolderFiles, found: OutEdges) -> PagedCsr:
        csr, bounds = (
            (found.indptr, found.indices, found.edge_weight),
            even_bounds(found.indptr, self._shares.block_edges),
        )
        if self._sorting is None:
            edges = PagedCsr(csr, bounds, ())
        else:
            edges = stored_edges(csr, files, (OUT_EDGES[1], OUT_EDGES[2]), bounds, self._sorting.pager)
        check_out_edges(edges)
        return edges

    @contextmanager
    def in_order(self, members: Ids, starts: OffsetArray) -> Iterator[PagedCsr]:
        """The in-edges of ``members``, a row each; cluster c, ``members[starts[c]:starts[c + 1]]``, is in one block."""
        assert self._sorting is not None
        edges = self._sorting.in_order(self.in_edges, members, starts)
        try:
            yield edges
        finally:
            self._sorting.give_back(edges)


@contextmanager
def reading(graph: Graph, shares: Shares, scratch: str | PathLike[str]) -> Iterator[Reading]:
    """The edges of a graph, to be read within what they may take; scratch files have no name and vanish at the end."""
    graph.check_files()
    if not shares.limited:
        yield Reading(graph, shares)
        return
    kind = file_system_in_memory(scratch)
    if kind is not None:
        raise ConfigError(not_on_a_disk(scratch, kind))
    pager = Pager(scratch)
    try:
        if shares.in_any_order:
            bring_in(graph.indices)
        merge, block = shares.merge_bytes, shares.block_edges
        yield Reading(graph, shares, Sorting(scratch, pager, shares.sort_bytes, merge, block))
    finally:
        pager.close()
        leave(graph)


def leave(graph: Graph) -> None:
    """Nothing of what a graph maps stays in memory."""
    labels = () if graph.labels is None else (graph.labels,)
    weight = () if graph.edge_weight is None else (graph.edge_weight,)
    for array in (graph.indptr, graph.indices, *weight, *labels):
        let_go(array)


def scratch_beside(graph: Graph, out: Address | None = None) -> Path:
    """Where scratch files go: beside what is written, else beside the graph's store, else with temporary files.

    Where that is memory and no disk, the next one that is on a disk.
    """
    beside: list[Path] = []
    for place in (out, graph.store):
        if place is not None and not is_elsewhere(place):
            folder = Path(place).absolute().parent
            while not folder.exists():
                folder = folder.parent
            beside.append(folder)
    return Path(disk_folder(*beside) or (beside[0] if beside else tempfile.gettempdir()))
