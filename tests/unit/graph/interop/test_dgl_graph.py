"""DGL graphs, through an object with DGL's documented methods (DGL cannot be installed with a current torch)."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dorylus.errors import DataError
from dorylus.graph import Graph, communities

torch: Any = pytest.importorskip("torch")


class DGLGraphLike:
    """edges(), num_nodes(), ndata, edata and is_homogeneous, as a DGLGraph has them."""

    is_homogeneous = True

    def __init__(self, ends: tuple[Any, Any], num_nodes: int) -> None:
        self._ends, self._num_nodes = ends, num_nodes
        self.ndata: dict[str, Any] = {}
        self.edata: dict[str, Any] = {}

    def edges(self) -> tuple[Any, Any]:
        return self._ends

    def num_nodes(self) -> int:
        return self._num_nodes


def tiny() -> DGLGraphLike:
    graph = DGLGraphLike((torch.tensor([2, 0]), torch.tensor([0, 1])), 3)
    graph.ndata["feat"] = torch.ones(3, 2)
    graph.ndata["label"] = torch.tensor([0, 1, 0])
    graph.ndata["train_mask"] = torch.tensor([1, 0, 0], dtype=torch.uint8)
    return graph


def test_edges_features_labels_and_masks_are_read() -> None:
    graph = Graph.from_dgl(tiny())
    assert graph.directed
    assert graph.indices.tolist() == [2, 0]
    assert graph.features.shape == (3, 2)
    assert graph.num_classes == 2
    assert graph.train_mask.tolist() == [True, False, False]
    assert graph.edge_weight is None


def test_the_named_edge_value_is_the_weight() -> None:
    theirs = tiny()
    theirs.edata["w"] = torch.tensor([[0.5], [2.0]])
    weight = Graph.from_dgl(theirs, weight="w").edge_weight
    assert weight is not None
    assert weight.tolist() == [0.5, 2.0]


def test_graphs_of_several_node_types_are_refused() -> None:
    theirs = tiny()
    theirs.is_homogeneous = False
    with pytest.raises(DataError, match=r"dgl.to_homogeneous"):
        Graph.from_dgl(theirs)


def test_a_graph_survives_the_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = SimpleNamespace(graph=lambda ends, num_nodes: DGLGraphLike(ends, num_nodes))
    monkeypatch.setitem(sys.modules, "dgl", stand_in)  # type: ignore[arg-type]
    graph = communities(100, 4, 8, average_degree=6)
    back = Graph.from_dgl(graph.to_dgl())
    for name in ("indptr", "indices", "features", "labels", "train_mask", "val_mask", "test_mask"):
        assert np.array_equal(getattr(back, name), getattr(graph, name)), name


def test_without_the_package_the_error_gives_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(DataError, match="pip install dgl"):
        communities(100, 4, 8, average_degree=6).to_dgl()
