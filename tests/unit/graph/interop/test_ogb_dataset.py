"""OGB node-property sets, through an object of the shape that OGB documents (the package itself downloads its data)."""

import sys
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dorylus.errors import DataError
from dorylus.graph import Graph, communities, load


class NodePropPredDatasetLike:
    """dataset[0] is (graph dictionary, labels [N, tasks]); get_idx_split() gives vertex numbers."""

    name = "ogbn-tiny"

    def __init__(self, parts: dict[str, Any], labels: np.ndarray, split: dict[str, Any]) -> None:
        self._item, self._split = (parts, labels), split

    def __getitem__(self, index: int) -> tuple[dict[str, Any], np.ndarray]:
        assert index == 0
        return self._item

    def get_idx_split(self) -> dict[str, Any]:
        return self._split


def tiny(**changes: Any) -> NodePropPredDatasetLike:
    parts = {
        "edge_index": np.array([[2, 0], [0, 1]]),
        "edge_feat": None,
        "node_feat": np.arange(6, dtype=np.float32).reshape(3, 2),
        "node_year": np.full((3, 1), 2016),
        "num_nodes": 3,
    }
    labels = changes.pop("labels", np.array([[1], [0], [4]]))
    split = {"train": np.array([0]), "valid": np.array([1]), "test": np.array([2])}
    return NodePropPredDatasetLike(parts | changes, labels, split)


def test_edges_features_labels_and_split_are_read() -> None:
    graph = Graph.from_ogb(tiny())
    assert graph.directed
    assert graph.indices.tolist() == [2, 0]
    assert graph.features.shape == (3, 2)
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, 0, 4]
    assert graph.num_classes == 5
    assert graph.val_mask.tolist() == [False, True, False]
    assert graph.name == "ogbn-tiny"


def test_edges_in_both_directions_make_an_undirected_graph() -> None:
    assert not Graph.from_ogb(tiny(edge_index=np.array([[0, 1], [1, 0]]))).directed


def test_vertices_without_features_and_with_several_tasks_are_read() -> None:
    graph = Graph.from_ogb(tiny(node_feat=None, labels=np.array([[1, 0], [0, 0], [1, 1]])))
    assert graph.num_features == 0
    assert graph.multilabel


def test_a_label_that_is_not_a_number_means_none() -> None:
    dataset = tiny(labels=np.array([[1.0], [0.0], [4.0], [np.nan]], np.float32), num_nodes=4, node_feat=None)
    labels = Graph.from_ogb(dataset).labels
    assert labels is not None
    assert labels.tolist() == [1, 0, 4, -1]


def test_graphs_of_several_node_types_are_refused() -> None:
    dataset = tiny()
    del dataset[0][0]["edge_index"]
    with pytest.raises(DataError, match="several node types"):
        Graph.from_ogb(dataset)


def test_a_graph_survives_the_round_trip() -> None:
    graph = communities(100, 4, 8, average_degree=6)
    parts, labels, split = graph.to_ogb()
    assert labels is not None
    assert labels.shape == (100, 1)
    back = Graph.from_ogb(NodePropPredDatasetLike(parts, labels, split))
    for name in ("indptr", "indices", "features", "labels", "train_mask", "val_mask", "test_mask"):
        assert np.array_equal(getattr(back, name), getattr(graph, name)), name


def install(monkeypatch: pytest.MonkeyPatch, open_dataset: Callable[..., Any]) -> None:
    stand_in: Any = SimpleNamespace(NodePropPredDataset=open_dataset)
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", stand_in)


def test_a_set_given_by_name_is_read_once_and_kept_as_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, str]] = []

    def open_dataset(name: str, root: str) -> NodePropPredDatasetLike:
        opened.append((name, root))
        return tiny()

    install(monkeypatch, open_dataset)
    graphs = [load("ogbn-arxiv", root=tmp_path) for _ in range(2)]
    assert opened == [("ogbn-arxiv", str(tmp_path / "ogb"))]
    assert np.array_equal(graphs[0].indices, graphs[1].indices)


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (
            UnpicklingError("Weights only load failed"),
            r"cannot read its own cache of ogbn-arxiv.*Remove .*ogbn_arxiv/processed",
        ),
        (ValueError("Invalid dataset name x.\nAvailable"), r"OGB cannot load ogbn-arxiv: Invalid dataset name x\."),
        (OSError("no route"), "no route"),
    ],
)
def test_errors_of_ogb_are_reported_in_one_sentence(
    failure: Exception, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_dataset(name: str, root: str) -> None:
        raise failure

    install(monkeypatch, open_dataset)
    with pytest.raises(DataError, match=sentence):
        load("ogbn-arxiv", root=tmp_path)


def test_a_missing_data_set_is_not_fetched_without_permission(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="download=False"):
        load("ogbn-arxiv", root=tmp_path, download=False)


def test_without_the_package_a_name_gives_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    with pytest.raises(DataError, match=r"needs the package ogb .*pip install \"dorylus\[ogb\]\""):
        Graph.from_ogb("ogbn-arxiv", root=tmp_path)
