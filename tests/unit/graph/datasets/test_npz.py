"""Graphs in .npz archives, in the published form and in the plain one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shared_data import FOLDER, needs_shared_data

from dorylus.errors import DataError, GraphError
from dorylus.graph import Graph, SparseFeatures, load

ADJACENCY = {  # 0 -> 1 twice, 1 -> 1, 2 -> 0, and a stored zero 3 -> 2
    "adj_data": np.array([1, 1, 1, 1, 0], np.float32),
    "adj_indices": np.array([1, 1, 1, 0, 2], np.int32),
    "adj_indptr": np.array([0, 2, 3, 4, 5], np.int32),
    "adj_shape": np.array([4, 4]),
    "labels": np.array([0, 1, 0, 2], np.int32),
}
SPARSE = {
    "attr_data": np.array([3.0, 2.0], np.float32),
    "attr_indices": np.array([7, 0], np.int32),
    "attr_indptr": np.array([0, 1, 1, 2, 2], np.int32),
    "attr_shape": np.array([4, 20]),
}


def edges_of(graph: Graph) -> set[tuple[int, int]]:
    return set(zip(*(ends.tolist() for ends in graph.edge_list()), strict=True))


def test_the_published_format_becomes_an_undirected_graph_with_binary_features(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", **ADJACENCY, **SPARSE)
    graph = load(tmp_path / "set.npz")
    assert edges_of(graph) == {(0, 1), (1, 0), (0, 2), (2, 0)}
    assert isinstance(graph.features, SparseFeatures)
    assert graph.features.to_dense()[:, [0, 7]].tolist() == [[0, 1], [0, 0], [1, 0], [0, 0]]
    assert graph.num_classes == 3
    assert graph.name == "set"


def test_dense_attributes_are_read_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", **ADJACENCY, attr_matrix=np.array([[0, 2], [1, 0], [1, 1], [0, 0]]))
    features = load(tmp_path / "set.npz").features
    assert isinstance(features, np.ndarray)
    assert features.tolist() == [[0, 1], [1, 0], [1, 1], [0, 0]]


def test_the_split_is_drawn_from_the_seed(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", **ADJACENCY)
    graphs = [load(tmp_path / "set.npz", split=(0.5, 0.25), seed=seed) for seed in (0, 0, *range(1, 9))]
    assert [int(mask.sum()) for mask in (graphs[0].train_mask, graphs[0].val_mask, graphs[0].test_mask)] == [2, 1, 1]
    assert np.array_equal(graphs[0].train_mask, graphs[1].train_mask)
    assert any(not np.array_equal(graphs[0].train_mask, other.train_mask) for other in graphs[2:])


def test_the_plain_form_keeps_its_split_and_its_missing_labels(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "plain.npz",
        num_nodes=np.int64(4),
        edges=np.array([[0, 1], [1, 3]], np.int32),
        labels=np.array([0, 1, -1, 1], np.int16),
        train_idx=np.array([0]),
        test_idx=np.array([1, 3]),
    )
    graph = load(tmp_path / "plain.npz")
    assert edges_of(graph) == {(0, 1), (1, 0), (1, 3), (3, 1)}
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, -1, 1]
    assert graph.test_mask.tolist() == [False, True, False, True]
    assert not graph.val_mask.any()


@needs_shared_data
@pytest.mark.parametrize(
    ("file", "num_vertices", "num_edges", "num_features", "num_classes", "sparse"),
    [
        ("amazon_photo", 7_650, 119_081, 745, 8, False),
        ("amazon_cs", 13_752, 245_861, 767, 10, False),
        ("coauthor_cs", 18_333, 81_894, 6_805, 15, True),
        ("npm_2016_edges", 304_031, 2_330_240, 0, 0, False),
    ],
)
def test_real_graphs_have_their_published_sizes(
    file: str, num_vertices: int, num_edges: int, num_features: int, num_classes: int, sparse: bool
) -> None:
    graph = load(FOLDER / "plain" / f"{file}.npz")
    assert (graph.num_vertices, graph.num_edges) == (num_vertices, 2 * num_edges)
    assert (graph.num_features, graph.num_classes) == (num_features, num_classes)
    assert graph.sparse_features == sparse


def write(path: Path, **parts: Any) -> Path:
    np.savez(path, **parts)
    return path


def test_the_error_for_another_archive_lists_the_members_of_a_graph_archive(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has the members weights.*num_nodes, edges or adj_data"):
        load(write(tmp_path / "a.npz", weights=np.ones(3)))


def test_a_truncated_archive_is_one_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", num_nodes=np.int64(2), edges=np.array([[0], [1]]))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"cannot read .* as a graph archive"):
        load(path)


def test_pickled_members_are_never_opened(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", num_nodes=np.int64(2), edges=np.array([[{}], [{}]], object))
    with pytest.raises(DataError, match="allow_pickle=False"):
        load(path)


def test_an_edge_to_a_missing_vertex_is_named(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="edge 0 -> 5"):
        load(write(tmp_path / "a.npz", num_nodes=np.int64(2), edges=np.array([[0], [5]])))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (np.array([7]), "names vertex 7, but vertices are numbered 0 to 1"),
        (np.array([-1]), "names vertex -1"),
        (np.array([0.7]), "whole numbers"),
        (np.array([True, False]), "whole numbers"),
    ],
)
def test_a_split_that_names_no_vertex_is_refused(tmp_path: Path, split: np.ndarray, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        load(write(tmp_path / "a.npz", num_nodes=np.int64(2), edges=np.array([[0], [1]]), train_idx=split))
