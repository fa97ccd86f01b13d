"""SciPy sparse matrices as graphs: entry (u, v) is the edge u -> v and its weight, as in scipy.sparse.csgraph."""

from typing import TYPE_CHECKING, Any

import numpy as np

from dorylus.backends import native
from dorylus.errors import GraphError
from dorylus.extras import optional
from dorylus.graph.graph import Graph
from dorylus.graph.interop.conversion import check_source, from_edge_arrays, sparse_features

if TYPE_CHECKING:
    from scipy.sparse import csr_array

INSTALL = "pip install scipy"


def from_scipy(matrix: Any, *, weighted: bool | None = None, **attributes: Any) -> Graph:
    """The graph of a square sparse matrix; undirected when the matrix is symmetric.

    Stored zeros are not edges. ``weighted`` left out: true if some value is not 1. ``attributes`` are the other fields
    of Graph; features may be a SciPy sparse matrix too.
    """
    check_source("scipy", matrix, "a sparse matrix, such as scipy.sparse.csr_array(matrix)", "tocoo", "ndim")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise GraphError(
            f"the matrix has shape {list(matrix.shape)}. An adjacency matrix is square: give one row and one column a "
            "vertex."
        )
    entries = matrix.tocoo(copy=True)
    entries.sum_duplicates()
    entries.eliminate_zeros()
    if weighted is None:
        weighted = bool((entries.data != 1).any())
    if hasattr(attributes.get("features"), "tocsr"):
        attributes["features"] = sparse_features(attributes["features"])
    weight = entries.data if weighted else None
    return from_edge_arrays(entries.row, entries.col, matrix.shape[0], weight, **attributes)


def to_scipy(graph: Graph) -> "csr_array[np.float32, tuple[int, int]]":
    """A ``csr_array`` of float32: the weight of edge u -> v at (u, v), 1 in an unweighted graph."""
    sparse = optional("scipy.sparse", INSTALL)
    weight = np.ones(graph.num_edges, dtype=np.float32) if graph.edge_weight is None else graph.edge_weight
    indptr, indices, values = native.csr_transpose(graph.indptr, graph.indices, graph.num_vertices, values=weight)
    matrix: csr_array[np.float32, tuple[int, int]] = sparse.csr_array(
        (values, indices, indptr), shape=(graph.num_vertices, graph.num_vertices)
    )
    return matrix
