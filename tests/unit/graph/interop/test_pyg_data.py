"""PyG Data to Graph and back."""

from typing import Any

import numpy as np
import pytest

from dorylus.errors import DataError, GraphError
from dorylus.graph import Graph, SparseFeatures, communities

torch: Any = pytest.importorskip("torch")
Data: Any = pytest.importorskip("torch_geometric.data").Data


def directed_data(**changes: Any) -> Any:
    fields = {
        "x": torch.arange(6.0).reshape(3, 2),
        "edge_index": torch.tensor([[2, 0, 1], [0, 1, 0]]),
        "y": torch.tensor([0, 1, 1]),
        "train_mask": torch.tensor([True, False, True]),
    }
    return Data(**(fields | changes))


def edges_of(graph: Graph) -> list[tuple[int, int]]:
    return sorted(zip(*(ends.tolist() for ends in graph.edge_list()), strict=True))


@pytest.mark.parametrize("multilabel", [False, True])
def test_a_graph_survives_the_round_trip(multilabel: bool) -> None:
    graph = communities(200, 4, 8, average_degree=6, multilabel=multilabel)
    back = Graph.from_pyg(graph.to_pyg())
    assert (back.name, back.directed, back.num_classes) == ("communities", False, 4)
    for name in ("indptr", "indices", "features", "labels", "train_mask", "val_mask", "test_mask"):
        assert np.array_equal(getattr(back, name), getattr(graph, name)), name


def test_pyg_data_holds_the_graph_it_was_made_from() -> None:
    graph = communities(200, 4, 8, average_degree=6)
    data = graph.to_pyg()
    data.validate()
    assert (data.num_nodes, data.num_edges, data.num_features) == (200, 1200, 8)
    assert data.is_undirected()
    assert not data.has_self_loops()


def test_edges_keep_their_direction_and_their_weight() -> None:
    graph = Graph.from_pyg(directed_data(edge_weight=torch.tensor([1.0, 2.0, 3.0])))
    assert graph.directed
    assert edges_of(graph) == [(0, 1), (1, 0), (2, 0)]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [3.0, 1.0, 2.0]
    data = graph.to_pyg()
    assert data.edge_index.tolist() == [[1, 2, 0], [0, 0, 1]]
    assert data.edge_weight.tolist() == [3.0, 1.0, 2.0]


def test_repeated_edges_are_kept_as_pyg_keeps_them() -> None:
    assert Graph.from_pyg(directed_data(edge_index=torch.tensor([[0, 0], [1, 1]]))).num_edges == 2


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_one_edge_attribute_is_the_weight(shape: tuple[int, ...]) -> None:
    graph = Graph.from_pyg(directed_data(edge_attr=torch.ones(shape) * 0.5))
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [0.5] * 3


def test_several_edge_attributes_are_refused() -> None:
    with pytest.raises(DataError, match="edge_attr with 2 columns"):
        Graph.from_pyg(directed_data(edge_attr=torch.ones(3, 2)))


@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_sparse_features_stay_sparse_both_ways(layout: str) -> None:
    dense = torch.tensor([[0.0, 2.0], [0.0, 0.0], [3.0, 0.0]])
    graph = Graph.from_pyg(directed_data(x=getattr(dense, layout)()))
    assert isinstance(graph.features, SparseFeatures)
    assert graph.features.to_dense().tolist() == dense.tolist()
    assert graph.to_pyg().x.to_dense().tolist() == dense.tolist()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_adj_t_is_read_by_destination() -> None:
    adj_t = torch.sparse_coo_tensor(
        [[0, 0, 1], [2, 1, 0]], [1.0, 2.0, 1.0], (3, 3), check_invariants=True
    ).to_sparse_csr()
    graph = Graph.from_pyg(directed_data(edge_index=None, adj_t=adj_t))
    assert edges_of(graph) == [(0, 1), (1, 0), (2, 0)]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [2.0, 1.0, 1.0]


def test_one_of_several_splits_is_chosen() -> None:
    data = directed_data(train_mask=torch.tensor([[True, False], [False, True], [False, False]]))
    assert Graph.from_pyg(data, split=1).train_mask.tolist() == [False, True, False]
    with pytest.raises(GraphError, match=r"holds 2 splits. Choose one with split=0 to split=1"):
        Graph.from_pyg(data)


def test_a_column_of_labels_is_flattened_and_nan_means_none() -> None:
    data = directed_data(y=torch.tensor([[0.0], [float("nan")], [2.0]]), train_mask=torch.tensor([True, False, False]))
    labels = Graph.from_pyg(data).labels
    assert labels is not None
    assert labels.tolist() == [0, -1, 2]


def test_data_without_edges_is_refused() -> None:
    with pytest.raises(DataError, match="neither edge_index nor adj_t"):
        Graph.from_pyg(Data(x=torch.ones(3, 2)))


def test_the_tensors_are_copies_and_writable() -> None:
    graph = communities(100, 2, 4, average_degree=4)
    before = np.array(graph.features)
    graph.to_pyg().x.zero_()
    assert np.array_equal(np.asarray(graph.features), before)


def test_a_bad_feature_is_named() -> None:
    x = torch.zeros(3, 2)
    x[1, 0] = float("nan")
    with pytest.raises(GraphError, match=r"features\[1, 0\] is nan"):
        Graph.from_pyg(directed_data(x=x))
