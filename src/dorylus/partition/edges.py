"""The edges of a shard in the numbers of an arrangement: own rows, then ghosts, each in an order of its own.

They are taken from the shard where it holds them, else from the graph. Rows and columns are given as vertices.
"""

import numpy as np
from numpy.typing import NDArray

from dorylus import kernels
from dorylus.graph import Graph
from dorylus.graph.adjacency import inverse
from dorylus.graph.stored_rows import StoredVertices
from dorylus.partition.shard import Csr, Ids, Shard

Mask = NDArray[np.bool_]
Source = Graph | StoredVertices  # of a shard: with edges at least where the shard has none


def source_of(shard: Shard, graph: Source) -> tuple[Csr, Ids | None]:
    """The in-edges as they are held, and the vertices their columns stand for; None: rows and columns are vertices."""
    if shard.edges is None:
        assert isinstance(graph, Graph)
        return (graph.indptr, graph.indices, graph.edge_weight), None
    return shard.edges, None if shard.num_servers == 1 else np.concatenate([shard.ids, shard.in_ghosts])


def in_edges(shard: Shard, graph: Source, order: Ids, columns: Ids, self_loops: bool) -> Csr:
    """The in-edges of own vertices in this order, with columns for these vertices."""
    (indptr, indices, weight), names = source_of(shard, graph)
    rows, place = order, inverse(columns, shard.num_vertices)
    if names is not None:
        rows, place = positions(shard, order), place[names]
    return kernels.csr_select(indptr, indices, rows, place, columns.size, values=weight, self_loops=self_loops)


def out_edges(shard: Shard, graph: Source, order: Ids, columns: Ids, needed: Mask, self_loops: bool) -> Csr:
    """The out-edges of own vertices of a directed graph, those that end in a needed column's vertex."""
    loops = needed[: order.size] if self_loops else False
    if shard.out is None:
        (indptr, indices, weight), _ = source_of(shard, graph)
        ends, row_of = np.where(needed, columns, np.int32(-1)), inverse(order, shard.num_vertices)
        return kernels.csr_select_transpose(indptr, indices, ends, row_of, order.size, values=weight, self_loops=loops)
    indptr, indices, weight = shard.out
    place = place_of_needed(columns, needed, shard.num_vertices)[np.concatenate([shard.ids, shard.out_ghosts])]
    rows = positions(shard, order)
    return kernels.csr_select(indptr, indices, rows, place, columns.size, values=weight, self_loops=loops)


def only_into(edges: Csr, columns: Ids, new_columns: Ids, needed: Mask, num_vertices: int) -> Csr:
    """The same rows, columns renumbered, without those that are not needed."""
    indptr, indices, weight = edges
    place = place_of_needed(new_columns, needed, num_vertices)[columns]
    rows = np.arange(indptr.size - 1, dtype=np.int32)
    return kernels.csr_select(indptr, indices, rows, place, new_columns.size, values=weight)


def place_of_needed(columns: Ids, needed: Mask, num_vertices: int) -> Ids:
    """The column of every vertex, -1 for those that have none or are not needed."""
    place = inverse(columns, num_vertices)
    place[columns[~needed]] = -1
    return place


def positions(shard: Shard, vertices: Ids) -> Ids:
    """Where these own vertices stand in the shard."""
    return np.searchsorted(shard.ids, vertices).astype(np.int32)


def needed_ghosts(shard: Shard, graph: Source, deepest: NDArray[np.int8]) -> NDArray[np.int8]:
    """The deepest level each in-ghost is needed at (-1: none): one less than that of its deepest reader here."""
    (indptr, indices, _), names = source_of(shard, graph)
    readers = np.full(indptr.size - 1, -1, np.int8)
    readers[shard.ids if names is None else slice(None)] = deepest[shard.ids] - np.int8(1)
    need = np.full(shard.num_vertices if names is None else names.size, -1, np.int8)
    if shard.in_ghosts.size:
        kernels.csr_reach(indptr, indices, readers, need)
    return need[shard.in_ghosts] if names is None else need[shard.ids.size :]
