"""Vertex orders that bring neighbours close together in memory, so that Gather's reads hit the cache.

An order is int32 [N], new number -> original number. Results are always reported in original numbers.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dorylus.errors import ConfigError, unknown_name
from dorylus.graph.arrays import IdArray
from dorylus.graph.graph import Graph

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def vertex_order(graph: Graph, method: str = "none") -> IdArray:
    """The order called ``method``, new -> old.

    - none: the order of the graph.
    - degree: by descending in- plus out-degree, so that the rows read most often are adjacent.
    - bfs: breadth first from the vertex of highest degree of each component.
    - rcm: reverse Cuthill-McKee, which keeps neighbours' numbers close.
    """
    if method not in _METHODS:
        raise ConfigError(unknown_name("vertex order", method, _METHODS))
    return _METHODS[method](graph)


def _unchanged(graph: Graph) -> IdArray:
    return np.arange(graph.num_vertices, dtype=np.int32)


def _by_degree(graph: Graph) -> IdArray:
    degrees = graph.in_degrees()
    if graph.directed:
        degrees = degrees + np.bincount(graph.indices, minlength=graph.num_vertices)
    return np.argsort(-degrees, kind="stable").astype(np.int32)


def _breadth_first(graph: Graph) -> IdArray:
    """One search from an extra vertex that points at the first vertex of each component, sorted by component."""
    from scipy.sparse import csgraph

    if graph.num_vertices == 0:
        return _unchanged(graph)
    num_components, component = csgraph.connected_components(_pattern(graph), directed=False)
    by_degree = _by_degree(graph)
    _, first_seen = np.unique(component[by_degree], return_index=True)
    starts = by_degree[first_seen]
    matrix = _with_root(_pattern(graph), starts)
    reached = csgraph.breadth_first_order(matrix, graph.num_vertices, return_predecessors=False)[1:]
    rank = np.empty(num_components, dtype=np.int64)  # larger components first
    rank[np.argsort(-np.bincount(component, minlength=num_components), kind="stable")] = np.arange(num_components)
    return reached[np.argsort(rank[component[reached]], kind="stable")].astype(np.int32)


def _reverse_cuthill_mckee(graph: Graph) -> IdArray:
    from scipy.sparse import csgraph

    if graph.num_vertices == 0:
        return _unchanged(graph)
    return csgraph.reverse_cuthill_mckee(_pattern(graph), symmetric_mode=True).astype(np.int32)


def _pattern(graph: Graph) -> "csr_array":
    """The undirected adjacency matrix as a SciPy matrix of ones."""
    from scipy.sparse import csr_array

    shape = (graph.num_vertices, graph.num_vertices)
    ones = np.ones(graph.num_edges, dtype=np.int8)
    matrix = csr_array((ones, graph.indices, graph.indptr), shape=shape)
    return matrix if not graph.directed else (matrix + matrix.T).tocsr()


def _with_root(matrix: "csr_array", starts: IdArray) -> "csr_array":
    from scipy.sparse import csr_array

    size = matrix.shape[0] + 1
    indices = np.concatenate([matrix.indices, starts])
    indptr = np.append(matrix.indptr, indices.size)
    return csr_array((np.ones(indices.size, dtype=np.float64), indices, indptr), shape=(size, size))


_METHODS: dict[str, Callable[[Graph], IdArray]] = {
    "none": _unchanged,
    "degree": _by_degree,
    "bfs": _breadth_first,
    "rcm": _reverse_cuthill_mckee,
}
