"""The matrix Gather multiplies by, against its definition and against PyG."""

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dorylus.errors import ConfigError, GraphError
from dorylus.graph import Adjacency, Graph, adjacency, communities

Norm = Literal["symmetric", "mean", "none"]


def dense(matrix: Adjacency) -> np.ndarray:
    n = matrix.num_vertices
    result = np.zeros((n, n))
    rows = np.repeat(np.arange(n), np.diff(matrix.indptr))
    values = np.ones(matrix.num_edges) if matrix.values is None else matrix.values
    np.add.at(result, (rows, matrix.indices), values)
    row_scale = np.ones(n) if matrix.row_scale is None else matrix.row_scale
    col_scale = np.ones(n) if matrix.col_scale is None else matrix.col_scale
    return row_scale[:, None] * result * col_scale


def random_graph(seed: int, *, directed: bool, weighted: bool, n: int = 12) -> Graph:
    rng = np.random.default_rng(seed)
    matrix = np.triu(rng.random((n, n)) < 0.25) if not directed else rng.random((n, n)) < 0.25
    source, destination = np.nonzero(matrix)
    weight = rng.random(source.size).astype(np.float32) + 0.1 if weighted else None
    return Graph.from_edges(source, destination, n, undirected=not directed, edge_weight=weight)


def expected(graph: Graph, norm: Norm, self_loops: bool) -> np.ndarray:
    """The definition, with dense matrices."""
    n = graph.num_vertices
    matrix = dense(Adjacency(graph.indptr, graph.indices, graph.edge_weight))
    present = dense(Adjacency(graph.indptr, graph.indices))
    if self_loops:
        missing = np.diag(1.0 - np.diag(present))
        matrix, present = matrix + missing, present + missing
    degree, count = matrix.sum(axis=1), present.sum(axis=1)
    with np.errstate(divide="ignore"):
        root = np.where(degree > 0, degree**-0.5, 0)
        share = np.where(count > 0, 1 / count, 0)
    scaled = {"symmetric": root[:, None] * matrix * root, "mean": share[:, None] * matrix, "none": matrix}
    assert matrix.shape == (n, n)
    return scaled[norm]


@settings(deadline=None, max_examples=20)
@given(
    st.integers(0, 10**6), st.booleans(), st.booleans(), st.booleans(), st.sampled_from(["symmetric", "mean", "none"])
)
def test_entries_follow_the_definition(seed: int, directed: bool, weighted: bool, loops: bool, norm: Norm) -> None:
    graph = random_graph(seed, directed=directed, weighted=weighted)
    found = adjacency(graph, norm=norm, self_loops=loops)
    assert np.allclose(dense(found), expected(graph, norm, loops), atol=1e-6)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.sampled_from(["symmetric", "mean", "none"]))
def test_an_order_renumbers_rows_and_columns(seed: int, directed: bool, weighted: bool, norm: Norm) -> None:
    graph = random_graph(seed, directed=directed, weighted=weighted)
    order = np.random.default_rng(seed).permutation(graph.num_vertices)
    found = adjacency(graph, order=order, norm=norm, self_loops=True)
    assert np.allclose(dense(found), expected(graph, norm, True)[np.ix_(order, order)], atol=1e-6)


def test_nothing_is_copied_when_nothing_changes() -> None:
    graph = random_graph(0, directed=False, weighted=False)
    assert adjacency(graph, norm="none", self_loops=False).indices is graph.indices


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_symmetric_normalisation_equals_gcn_norm_of_pyg(directed: bool, weighted: bool) -> None:
    torch: Any = pytest.importorskip("torch")
    gcn_norm = pytest.importorskip("torch_geometric.nn.conv.gcn_conv").gcn_norm
    graph = random_graph(5, directed=directed, weighted=weighted, n=30)
    data = graph.to_pyg()
    edge_index, weight = gcn_norm(data.edge_index, data.get("edge_weight"), graph.num_vertices)
    theirs = torch.zeros(30, 30)
    theirs.index_put_((edge_index[1], edge_index[0]), weight, accumulate=True)
    ours = dense(adjacency(graph, norm="symmetric", self_loops=True))
    assert np.allclose(ours, theirs.numpy(), atol=1e-6)


def test_negative_degrees_have_no_square_root() -> None:
    graph = Graph.from_edges([0], [1], edge_weight=[-2.0])
    with pytest.raises(GraphError, match=r"vertex 0 add up to -2.0"):
        adjacency(graph, norm="symmetric", self_loops=False)


def test_an_unknown_normalisation_lists_the_known_ones() -> None:
    norm: Any = "symetric"
    with pytest.raises(ConfigError, match="Did you mean 'symmetric'"):
        adjacency(communities(100, 2, 4, average_degree=4), norm=norm, self_loops=True)
