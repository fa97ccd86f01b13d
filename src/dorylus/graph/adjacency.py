"""The matrix that Gather multiplies by: a graph's edges in working order, with self loops and normalisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dorylus import kernels
from dorylus.errors import GraphError
from dorylus.graph import canonical
from dorylus.graph.arrays import FloatArray, IdArray, OffsetArray
from dorylus.graph.degrees import Degrees, Norm
from dorylus.graph.graph import Graph
from dorylus.paging import PagedArray


@dataclass(frozen=True, eq=False)
class Adjacency:
    """A sparse matrix whose entry (v, u) is ``row_scale[v] * values[e] * col_scale[u]`` for the edge e = u -> v.

    Square for a whole graph; a shard's has columns for ghosts after those of its own vertices. A part that is None
    counts as ones: normalising an unweighted graph stores two numbers a vertex, none an edge.
    """

    indptr: OffsetArray
    indices: IdArray
    values: FloatArray | None = None
    row_scale: FloatArray | None = None
    col_scale: FloatArray | None = None
    pages: tuple[PagedArray, ...] = ()  # what of this lies in files: a span an interval

    @property
    def num_vertices(self) -> int:
        """How many rows the matrix has."""
        return self.indptr.size - 1

    @property
    def num_edges(self) -> int:
        """How many entries are stored."""
        return self.indices.size


def adjacency(graph: Graph, *, order: IdArray | None = None, norm: Norm, self_loops: bool) -> Adjacency:
    """The adjacency matrix of ``graph``, its vertices renumbered by ``order`` (new -> old).

    - symmetric: entry (v, u) is w / sqrt(d_v d_u), d the sum of the weights of in-edges; 0 where d is 0.
    - mean: entry (v, u) is w / (number of v's in-edges).
    - none: entry (v, u) is w.

    ``self_loops`` adds (v, v) with weight 1 to vertices that have no self loop; d counts them.
    """
    order = None if order is None else canonical.columns(order, "order")
    edges = _in_order(graph, order, self_loops)
    degrees = Degrees.of(graph) if order is None else Degrees.of(graph).of_vertices(order)
    return Adjacency(*edges, *degrees.scales(norm, self_loops, order))


def _in_order(graph: Graph, order: IdArray | None, self_loops: bool) -> tuple[OffsetArray, IdArray, FloatArray | None]:
    if order is None and not self_loops:
        return graph.indptr, graph.indices, graph.edge_weight
    size = graph.num_vertices
    order = np.arange(size, dtype=np.int32) if order is None else order
    new_of = inverse(order, size)
    if order.size != size or (new_of < 0).any():
        raise GraphError(f"order holds {order.size} numbers: give each of the {size} vertices once.")
    edges = graph.indptr, graph.indices
    return kernels.csr_select(*edges, order, new_of, size, values=graph.edge_weight, self_loops=self_loops)


def inverse(order: IdArray, size: int) -> IdArray:
    """int32 [size]: where each number stands in ``order``, -1 for those that are not in it."""
    place = np.full(size, -1, dtype=np.int32)
    place[order] = np.arange(order.size, dtype=np.int32)
    return place
