"""The adjacency matrix that Gather multiplies by: edges in working order, self loops, normalisation by degree."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np

from dorylus.backends import native
from dorylus.errors import ConfigError, GraphError, unknown_name
from dorylus.graph.arrays import AnyArray, BoolArray, FloatArray, IdArray, OffsetArray
from dorylus.graph.coerce import as_ids
from dorylus.graph.graph import Graph
from dorylus.paging import PagedArray

Norm: TypeAlias = Literal["symmetric", "mean", "none"]
NORMS = ("mean", "none", "symmetric")
BLOCK = 1 << 22  # weights summed at a time


@dataclass(frozen=True, eq=False)
class Degrees:
    """Per vertex: the number of in-edges, the sum of their weights (None: unweighted), and whether it has a self loop.

    Computed on the whole graph in its own order, so that every server uses the same numbers for a vertex.
    """

    counts: OffsetArray
    weights: AnyArray | None  # float64
    loops: BoolArray

    @classmethod
    def of(cls, graph: Graph) -> Degrees:
        """The degrees of every vertex of a graph."""
        weights = None if graph.edge_weight is None else weight_sums(graph.indptr, graph.edge_weight)
        return cls(graph.in_degrees(), weights, has_self_loop(graph.indptr, graph.indices))

    def of_vertices(self, numbers: AnyArray) -> Degrees:
        """The degrees of the vertices at these positions, in that order."""
        weights = None if self.weights is None else self.weights[numbers]
        return Degrees(self.counts[numbers], weights, self.loops[numbers])

    def scales(
        self, norm: Norm, self_loops: bool, ids: IdArray | None = None
    ) -> tuple[FloatArray | None, FloatArray | None]:
        """(scale of each vertex as a row, as a column) in the adjacency matrix; None counts as ones.

        ``ids`` are the vertices' numbers in the graph, for error messages.
        """
        if norm not in NORMS:
            raise ConfigError(unknown_name("normalisation", norm, NORMS))
        if norm == "none":
            return None, None
        added = ~self.loops if self_loops else np.zeros_like(self.loops)
        if norm == "mean" or self.weights is None:
            degrees = (self.counts + added).astype(np.float32)
        else:
            degrees = (self.weights + added).astype(np.float32)
        if norm == "mean":
            return _power(degrees, -1.0), None
        if degrees.size and degrees.min() < 0:
            _refuse_negative(degrees, ids)
        scale = _power(degrees, -0.5)
        return scale, scale


def has_self_loop(indptr: OffsetArray, indices: IdArray) -> BoolArray:
    """bool [rows]: whether row v lists column v; columns must ascend."""
    return native.csr_loops(indptr, indices)


def weight_sums(indptr: OffsetArray, weight: FloatArray) -> AnyArray:
    """The sum of each row in double precision, a block of rows at a time: NumPy converts its whole input first."""
    sums = np.zeros(indptr.size - 1, np.float64)
    bounds = np.unique(np.searchsorted(indptr, np.arange(0, weight.size + BLOCK, BLOCK)).clip(max=sums.size))
    for begin, end in pairwise(bounds):
        filled = begin + np.flatnonzero(np.diff(indptr[begin : end + 1]))
        if filled.size:
            first, last = indptr[begin], indptr[end]
            sums[filled] = np.add.reduceat(weight[first:last], indptr[filled] - first, dtype=np.float64)
    return sums


def _power(degrees: FloatArray, exponent: float) -> FloatArray:
    scale = np.zeros_like(degrees)
    np.power(degrees, exponent, out=scale, where=degrees > 0)
    return scale


def _refuse_negative(degrees: FloatArray, ids: IdArray | None) -> None:
    row = int(np.argmax(degrees < 0))
    vertex = row if ids is None else int(ids[row])
    raise GraphError(
        f"the weights of the in-edges of vertex {vertex} add up to {degrees[row]}. Symmetric normalisation takes the "
        "square root of that sum: use a layer with mean or plain sums, or weights that are not negative."
    )


@dataclass(frozen=True, eq=False)
class Adjacency:
    """A sparse matrix whose entry (v, u) is ``row_scale[v] * values[e] * col_scale[u]`` for the edge e = u -> v.

    It is square for a whole graph. In a shard, the columns of ghosts follow those of its own vertices. A part that is
    None counts as ones: a normalised unweighted graph stores two numbers per vertex and none per edge.
    """

    indptr: OffsetArray
    indices: IdArray
    values: FloatArray | None = None
    row_scale: FloatArray | None = None
    col_scale: FloatArray | None = None
    pages: tuple[PagedArray, ...] = ()  # the arrays that are in files, with one span per interval

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
    order = None if order is None else as_ids(order, "order")
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
    return native.csr_select(*edges, order, new_of, size, values=graph.edge_weight, self_loops=self_loops)


def inverse(order: IdArray, size: int) -> IdArray:
    """int32 [size]: the position of each number in ``order``, -1 for a number that it does not contain."""
    positions = np.full(size, -1, dtype=np.int32)
    positions[order] = np.arange(order.size, dtype=np.int32)
    return positions
