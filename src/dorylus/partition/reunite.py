"""Shards put together again: the graph they were cut from."""

from collections.abc import Callable

import numpy as np

from dorylus import kernels
from dorylus.graph import Graph
from dorylus.graph.arrays import AnyArray
from dorylus.partition.shard import Shard


def reunite(shard_of: Callable[[int], Shard], num_servers: int) -> Graph:
    """The graph whose shards these are, its edges alone; takes the graph's size and that of one shard."""
    first = shard_of(0)
    indptr = _offsets(shard_of, num_servers, first.num_vertices)
    indices = np.empty(indptr[-1], np.int32)
    weighted = first.edges is not None and first.edges[2] is not None
    weights = np.empty(indices.size, np.float32) if weighted else None
    for server in range(num_servers):
        entries, columns, values = _rows_in_graph(shard_of(server), indptr)
        indices[entries] = columns
        if weights is not None:
            weights[entries] = values
    return Graph(indptr, indices, edge_weight=weights, directed=first.directed, trust="everything")


def _offsets(shard_of: Callable[[int], Shard], num_servers: int, num_vertices: int) -> AnyArray:
    offsets = np.zeros(num_vertices + 1, np.int64)
    for server in range(num_servers):
        shard = shard_of(server)
        offsets[1:][shard.ids] = shard.degrees.counts[: shard.ids.size]
    return np.cumsum(offsets, out=offsets)


def _rows_in_graph(shard: Shard, indptr: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray | None]:
    """(entries of the graph's CSR, columns in the graph's numbers, weights) of a shard's in-edges."""
    assert shard.edges is not None
    rows, names = np.arange(shard.ids.size, dtype=np.int32), np.concatenate([shard.ids, shard.in_ghosts])
    held, indices, weight = shard.edges
    offsets, columns, values = kernels.csr_select(held, indices, rows, names, shard.num_vertices, values=weight)
    shift = np.repeat(indptr[shard.ids] - offsets[:-1], np.diff(offsets))
    return shift + np.arange(columns.size), columns, values
