"""The store: what is saved comes back, and nothing half-written or damaged passes for a store."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dorylus.errors import DataError
from dorylus.graph import Graph, SparseFeatures, array_folder, communities


def some_graph(**changes: Any) -> Graph:
    rng = np.random.default_rng(0)
    fields: dict[str, Any] = {
        "features": rng.random((6, 3)).astype(np.float32),
        "labels": np.array([0, 1, 2, 0, -1, 1]),
        "train_mask": np.array([1, 1, 0, 0, 0, 0], bool),
        "test_mask": np.array([0, 0, 1, 1, 0, 0], bool),
        "name": "six",
    }
    return Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 5], 6, **(fields | changes))


def assert_same(a: Graph, b: Graph) -> None:
    assert (a.name, a.directed, a.num_classes, a.num_features) == (b.name, b.directed, b.num_classes, b.num_features)
    for name in ("indptr", "indices", "labels", "edge_weight", "train_mask", "val_mask", "test_mask"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None), name
        assert left is None or (left.dtype == right.dtype and np.array_equal(left, right)), name
    assert type(a.features) is type(b.features)
    left, right = (g.features.to_dense() if isinstance(g.features, SparseFeatures) else g.features for g in (a, b))
    assert np.array_equal(left, right)


GRAPHS = {
    "dense": some_graph(),
    "sparse": some_graph(features=SparseFeatures.from_dense(np.eye(6, 4, dtype=np.float32))),
    "weighted": Graph.from_edges([0, 1], [1, 2], edge_weight=[0.5, -2.0]),
    "directed": Graph.from_edges([0, 1], [1, 2], undirected=False),
    "multilabel": communities(50, 3, 4, average_degree=4, multilabel=True),
    "no edges": Graph.from_edges([], [], 3),
    "nothing": Graph.from_edges([], [], 0),
    "more classes than labels": some_graph(num_classes=9),
}


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
def test_what_is_saved_comes_back(graph: Graph, verify: bool, tmp_path: Path) -> None:
    graph.save(tmp_path / "store")
    assert_same(Graph.open(tmp_path / "store", verify=verify), graph)


def test_arrays_are_read_only_views_of_the_files(tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    features = Graph.open(tmp_path / "store").features
    assert type(features) is np.ndarray
    assert isinstance(features.base, np.memmap)
    assert not features.flags.writeable


def test_a_store_that_exists_is_replaced_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "store"
    some_graph().save(path)
    with pytest.raises(DataError, match=r"exists already.*overwrite=True"):
        some_graph(name="other").save(path)
    assert Graph.open(path).name == "six"
    some_graph(name="other").save(path, overwrite=True)
    assert Graph.open(path).name == "other"
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]


def test_a_graph_opened_from_a_store_survives_its_replacement(tmp_path: Path) -> None:
    path = tmp_path / "store"
    some_graph().save(path)
    graph = Graph.open(path)
    before = np.array(graph.features)
    Graph.from_edges([0], [1]).save(path, overwrite=True)
    assert np.array_equal(np.asarray(graph.features), before)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_no_store_is_never_replaced(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("cat")
    with pytest.raises(DataError, match="exists and is not a store"):
        some_graph().save(tmp_path / "photos", overwrite=overwrite)
    assert (tmp_path / "photos" / "cat.jpg").exists()


@pytest.mark.parametrize("existing", [False, True])
def test_a_failure_while_writing_leaves_nothing_behind(
    existing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    if existing:
        some_graph().save(path)
    array = array_folder.NewFolder.array

    def full_disk(folder: array_folder.NewFolder, name: str, *form: Any) -> Any:
        if name == "labels":
            raise OSError(28, "No space left on device")
        return array(folder, name, *form)

    monkeypatch.setattr(array_folder.NewFolder, "array", full_disk)
    with pytest.raises(DataError, match=r"No space left on device.*free space"):
        some_graph(name="new").save(path, overwrite=True)
    assert [entry.name for entry in tmp_path.iterdir()] == (["store"] if existing else [])
    if existing:
        assert Graph.open(path, verify=True).name == "six"


def test_the_old_store_comes_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    some_graph().save(path)
    rename, calls = array_folder.os.rename, []

    def second_fails(source: Any, target: Any) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(array_folder.os, "rename", second_fails)
    with pytest.raises(DataError, match="Input/output error"):
        some_graph(name="new").save(path, overwrite=True)
    assert Graph.open(path).name == "six"


@pytest.mark.parametrize("file", ["indptr.bin", "indices.bin", "features.bin", "labels.bin", "train_mask.bin"])
def test_a_truncated_store_is_one_sentence(file: str, tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    target = tmp_path / "store" / file
    target.write_bytes(target.read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"damaged: {file} has [\d,]+ bytes instead of [\d,]+\. Write it again"):
        Graph.open(tmp_path / "store")


def test_a_missing_array_is_named(tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    (tmp_path / "store" / "labels.bin").unlink()
    with pytest.raises(DataError, match=r"labels.bin is missing"):
        Graph.open(tmp_path / "store")


def test_a_flipped_bit_is_found_by_its_checksum(tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    target = tmp_path / "store" / "features.bin"
    raw = bytearray(target.read_bytes())
    raw[5] ^= 1
    target.write_bytes(raw)
    Graph.open(tmp_path / "store")
    with pytest.raises(DataError, match="checksum of features differs"):
        Graph.open(tmp_path / "store", verify=True)


def test_an_edge_outside_the_graph_is_found_without_checksums(tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    target = tmp_path / "store" / "indices.bin"
    np.full(8, 99, "<i4").tofile(target)
    with pytest.raises(DataError, match="damaged: edge 99 -> 0"):
        Graph.open(tmp_path / "store")


def rewrite(path: Path, **changes: Any) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | changes))


MANIFESTS = {
    "another version": ({"version": 4}, "has version 4, but this Dorylus reads version 1, 2, 3"),
    "another format": ({"format": "zarr"}, "does not say format 'dorylus-graph'"),
    "no arrays": ({"arrays": {}}, "damaged: 'features.indptr'|damaged"),
    "arrays of the wrong kind": ({"arrays": 3}, "damaged"),
    "a wrong count": ({"num_vertices": 7}, "says num_vertices = 7, the arrays say 6"),
    "a name that leads elsewhere": (
        {"arrays": {"../indptr": {"dtype": "<i8", "shape": [7], "bytes": 56, "crc32": 0}}},
        "damaged: array name '../indptr'",
    ),
    "an unknown type": (
        {"arrays": {"indptr": {"dtype": "|O8", "shape": [7], "bytes": 56, "crc32": 0}}},
        "unknown type '|O8'",
    ),
}


@pytest.mark.parametrize(("changes", "sentence"), MANIFESTS.values(), ids=MANIFESTS.keys())
def test_a_damaged_manifest_is_one_sentence(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    rewrite(tmp_path / "store", **changes)
    with pytest.raises(DataError, match=sentence):
        Graph.open(tmp_path / "store")


def test_half_a_manifest_is_one_sentence(tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    (tmp_path / "store" / "manifest.json").write_text('{"format": "dory')
    with pytest.raises(DataError, match=r"manifest.json is not JSON"):
        Graph.open(tmp_path / "store")


def test_a_folder_without_a_manifest_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a store"):
        Graph.open(tmp_path)


def test_kernels_accept_the_mapped_arrays(tmp_path: Path) -> None:
    from dorylus.graph import adjacency

    graph = communities(100, 2, 4, average_degree=4)
    graph.save(tmp_path / "store")
    ours = adjacency(Graph.open(tmp_path / "store"), norm="symmetric", self_loops=True)
    assert np.array_equal(ours.indices, adjacency(graph, norm="symmetric", self_loops=True).indices)
