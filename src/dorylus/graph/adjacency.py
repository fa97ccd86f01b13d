"""The matrix that Gather multiplies by: a graph's edges in working order, with self loops and normalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from dorylus import kernels
from dorylus.errors import ConfigError, GraphError, unknown_name
from dorylus.graph import canonical
from dorylus.graph.arrays import BoolArray, FloatArray, IdArray, OffsetArray
from dorylus.graph.features import row_sums
from dorylus.graph.graph import Graph

Norm: TypeAlias = Literal["symmetric", "mean", "none"]
NORMS = ("mean", "none", "symmetric")


@dataclass(frozen=True, eq=False)
class Adjacency:
    """A square sparse matrix whose entry (v, u) is ``row_scale[v] * values[e] * col_scale[u]`` for the edge e = u -> v.

    A part that is None counts as ones: normalising an unweighted graph stores two numbers a vertex, none an edge.
    ``symmetric`` says that indices and values equal those of the transpose (the scales may differ).
    """

    indptr: OffsetArray
    indices: IdArray
    values: FloatArray | None = None
    row_scale: FloatArray | None = None
    col_scale: FloatArray | None = None
    symmetric: bool = False

    @property
    def num_vertices(self) -> int:
        """How many rows, and columns, the matrix has."""
        return self.indptr.size - 1

    @property
    def num_edges(self) -> int:
        """How many entries are stored."""
        return self.indices.size

    def transpose(self, keep_rows: BoolArray | None = None) -> Adjacency:
        """The transposed matrix: row u lists the destinations of u's out-edges.

        With ``keep_rows`` only edges into those vertices remain: what a gradient that is zero elsewhere needs.
        A symmetric matrix with every row kept shares its arrays with its transpose.
        """
        if self.symmetric and (keep_rows is None or bool(keep_rows.all())):
            parts: tuple[OffsetArray, IdArray, FloatArray | None] = (self.indptr, self.indices, self.values)
        else:
            parts = kernels.csr_transpose(
                self.indptr, self.indices, self.num_vertices, values=self.values, keep_rows=keep_rows
            )
        symmetric = self.symmetric and parts[1] is self.indices
        return Adjacency(*parts, row_scale=self.col_scale, col_scale=self.row_scale, symmetric=symmetric)


def adjacency(graph: Graph, *, order: IdArray | None = None, norm: Norm, self_loops: bool) -> Adjacency:
    """The adjacency matrix of ``graph``, its vertices renumbered by ``order`` (new -> old).

    - symmetric: entry (v, u) is w / sqrt(d_v d_u), d the sum of the weights of in-edges; 0 where d is 0.
    - mean: entry (v, u) is w / (number of v's in-edges).
    - none: entry (v, u) is w.

    ``self_loops`` adds (v, v) with weight 1 to vertices that have no self loop; d counts them.
    """
    if norm not in NORMS:
        raise ConfigError(unknown_name("normalisation", norm, NORMS))
    indptr, indices, values = _in_order(graph, order, self_loops)
    row_scale, col_scale = _scales(norm, indptr, values, order)
    return Adjacency(indptr, indices, values, row_scale, col_scale, symmetric=not graph.directed)


def _in_order(graph: Graph, order: IdArray | None, self_loops: bool) -> tuple[OffsetArray, IdArray, FloatArray | None]:
    if order is None and not self_loops:
        return graph.indptr, graph.indices, graph.edge_weight
    order = np.arange(graph.num_vertices, dtype=np.int32) if order is None else canonical.columns(order, "order")
    return kernels.csr_permute(graph.indptr, graph.indices, order, values=graph.edge_weight, self_loops=self_loops)


def _scales(
    norm: Norm, indptr: OffsetArray, values: FloatArray | None, order: IdArray | None
) -> tuple[FloatArray | None, FloatArray | None]:
    counts = np.diff(indptr)
    if norm == "none":
        return None, None
    if norm == "mean":
        return _power(counts.astype(np.float32), -1.0), None
    degrees = counts.astype(np.float32) if values is None else row_sums(indptr, values)
    if degrees.size and degrees.min() < 0:
        _refuse_negative(degrees, order)
    scale = _power(degrees, -0.5)
    return scale, scale


def _power(degrees: FloatArray, exponent: float) -> FloatArray:
    scale = np.zeros_like(degrees)
    np.power(degrees, exponent, out=scale, where=degrees > 0)
    return scale


def _refuse_negative(degrees: FloatArray, order: IdArray | None) -> None:
    row = int(np.argmax(degrees < 0))
    vertex = row if order is None else int(order[row])
    raise GraphError(
        f"the weights of the in-edges of vertex {vertex} add up to {degrees[row]}. Symmetric normalisation takes the "
        "square root of that sum: use a layer with mean or plain sums, or weights that are not negative."
    )
