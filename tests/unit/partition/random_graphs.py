"""Random small graphs: empty rows, self loops, hubs, isolated vertices."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

import dorylus


@st.composite
def graphs(draw: st.DrawFn, max_vertices: int = 24, *, weighted: bool = False) -> dorylus.Graph:
    """A graph of a few vertices, directed or not."""
    num_vertices = draw(st.integers(1, max_vertices))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_edges = draw(st.integers(0, 3 * num_vertices))
    source, destination = (num_vertices * rng.random((2, num_edges)) ** 2).astype(np.int64)
    if draw(st.booleans()):
        return _graph(rng, source, destination, num_vertices, undirected=False, weighted=weighted)
    ends = np.unique(np.sort(np.stack([source, destination]), axis=0), axis=1)
    return _graph(rng, ends[0], ends[1], num_vertices, undirected=True, weighted=weighted)


def _graph(
    rng: np.random.Generator, source: Any, destination: Any, num_vertices: int, *, undirected: bool, weighted: bool
) -> dorylus.Graph:
    once = np.unique(np.stack([source, destination]), axis=1)
    return dorylus.Graph.from_edges(
        once[0],
        once[1],
        num_vertices,
        undirected=undirected,
        edge_weight=rng.uniform(0.5, 2.0, once.shape[1]).astype(np.float32) if weighted else None,
        features=rng.standard_normal((num_vertices, 3), dtype=np.float32),
    )


def dense_matrix(graph: dorylus.Graph) -> NDArray[np.float64]:
    """Entry (v, u) is the weight of the edge u -> v."""
    out = np.zeros((graph.num_vertices, graph.num_vertices))
    source, destination = graph.edge_list()
    out[destination, source] = 1.0 if graph.edge_weight is None else graph.edge_weight
    return out
