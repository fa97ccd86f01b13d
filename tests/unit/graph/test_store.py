"""The store: a saved graph comes back, and nothing incomplete or damaged is accepted as a store."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dorylus.graph.array_folder as array_folder
import dorylus.graph.array_writer as array_writer
import dorylus.graph.locations as locations
import dorylus.graph.store as store
from dorylus import files
from dorylus.errors import DataError
from dorylus.graph import Graph, SparseFeatures, communities


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
def test_a_saved_graph_comes_back(graph: Graph, verify: bool, tmp_path: Path) -> None:
    graph.save(tmp_path / "store")
    assert_same(Graph.open(tmp_path / "store", verify=verify), graph)


def test_arrays_are_read_only_views_of_the_files(tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    features = Graph.open(tmp_path / "store").features
    assert type(features) is np.ndarray
    assert isinstance(features.base, np.memmap)
    assert not features.flags.writeable


def test_a_store_that_exists_is_replaced_only_with_overwrite(tmp_path: Path) -> None:
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

    monkeypatch.setattr(files, "exchange", lambda first, second: False)  # as on NFS
    monkeypatch.setattr(array_folder.os, "rename", second_fails)
    with pytest.raises(DataError, match="Input/output error"):
        some_graph(name="new").save(path, overwrite=True)
    assert Graph.open(path).name == "six"


@pytest.mark.parametrize("file", ["indptr.bin", "indices.bin", "features.bin", "labels.bin", "train_mask.bin"])
def test_a_truncated_store_is_reported_in_one_sentence(file: str, tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    target = tmp_path / "store" / file
    target.write_bytes(target.read_bytes()[:-1])
    with pytest.raises(
        DataError, match=rf"damaged: {file} has [\d,]+ bytes instead of [\d,]+\. Copy or ingest it again"
    ):
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
    with pytest.raises(DataError, match=r"damaged: edge 99 -> 0 .* has vertices 0 to 5\. Copy or ingest it again\.$"):
        Graph.open(tmp_path / "store")


def test_falling_offsets_are_reported_without_advice_for_arrays(tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    np.array([0, 9, 3, 5, 6, 6, 8], "<i8").tofile(tmp_path / "store" / "indptr.bin")
    with pytest.raises(DataError, match=r"damaged: indptr falls from 9 to 3 at row 1\. Copy or ingest it again\.$"):
        Graph.open(tmp_path / "store")


def rewrite(path: Path, **changes: Any) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | changes))


MANIFESTS = {
    "another version": ({"version": 4}, "has version 4, but this Dorylus reads version 1, 2, 3"),
    "another format": ({"format": "zarr"}, "does not say format 'dorylus-graph'"),
    "a version that is no number": ({"version": True}, "has version true, but"),
    "no arrays": ({"arrays": {}}, r"damaged: manifest\.json lists no array 'indptr'"),
    "arrays of the wrong kind": ({"arrays": []}, r"manifest\.json says arrays = \[\], which is not an object"),
    "a count in quotes": ({"num_vertices": "6"}, r'says num_vertices = "6", which is not a whole number from 0 to'),
    "a count with a point": ({"num_vertices": 6.0}, r"says num_vertices = 6\.0, which is not a whole number"),
    "a negative count": ({"num_edges": -1}, "says num_edges = -1, which is not"),
    "very many classes": ({"num_classes": 10**12}, r"num_classes = 1000000000000, .* from 0 to 2,147,483,648"),
    "a direction in words": ({"directed": "no"}, 'says directed = "no", which is not true or false'),
    "no name": ({"name": None}, "says name = null, which is not a text"),
    "a long value": ({"name": list(range(1000))}, r"says name = \[0, 1, 2[0-9, ]*\.\.\., which is not a text"),
    "a wrong count": ({"num_vertices": 7}, "says num_vertices = 7, the arrays say 6"),
    "a name that leads to another folder": (
        {"arrays": {"../indptr": {"dtype": "<i8", "shape": [7], "bytes": 56, "crc32": 0}}},
        r"damaged: array name '\.\./indptr' in manifest\.json",
    ),
    "an unknown type": (
        {"arrays": {"indptr": {"dtype": "|O8", "shape": [7], "bytes": 56, "crc32": 0}}},
        r"""manifest\.json, array 'indptr' says dtype = "\|O8", which is not one of <f2, <f4, .*\|u1""",
    ),
    "an array that is no object": ({"arrays": {"indptr": 3}}, "arrays says indptr = 3, which is not an object"),
}
ENTRIES = {
    "a shape in words": ({"shape": "many"}, r"""array 'features' says shape = "many", which is not a list"""),
    "a shape with a hole": ({"shape": [6, None]}, r"says shape = \[6, null\], which is not a list of whole numbers"),
    "a size in words": ({"bytes": "72"}, """says bytes = "72", which is not a whole number"""),
    "a type for other arrays": ({"dtype": "<i4"}, r"manifest\.json says that features is <i4, not <f4 or <f2"),
    "another size": ({"bytes": 71}, "array 'features' says bytes = 71, but its type and shape make 72"),
    "a checksum in words": ({"crc32": "x"}, """array 'features' says crc32 = "x", which is not a whole number"""),
    "a checksum of more bits": ({"crc32": 1 << 32}, "says crc32 = 4294967296, which is not"),
}


@pytest.mark.parametrize(("changes", "sentence"), MANIFESTS.values(), ids=MANIFESTS.keys())
def test_a_damaged_manifest_is_reported_in_one_sentence(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    rewrite(tmp_path / "store", **changes)
    with pytest.raises(DataError, match=sentence):
        Graph.open(tmp_path / "store")


@pytest.mark.parametrize(("changes", "sentence"), ENTRIES.values(), ids=ENTRIES.keys())
def test_a_damaged_entry_of_an_array_is_reported_in_one_sentence(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    some_graph().save(tmp_path / "store")
    arrays = json.loads((tmp_path / "store" / "manifest.json").read_text())["arrays"]
    rewrite(tmp_path / "store", arrays=arrays | {"features": arrays["features"] | changes})
    with pytest.raises(DataError, match=sentence):
        Graph.open(tmp_path / "store")


NEEDED = ["format", "version", "name", "directed", "num_vertices", "num_edges", "num_features", "num_classes", "arrays"]


@pytest.mark.parametrize("field", NEEDED)
def test_a_field_that_is_missing_is_named(field: str, tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    manifest = json.loads((tmp_path / "store" / "manifest.json").read_text())
    del manifest[field]
    (tmp_path / "store" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=rf"manifest\.json does not say {field}|has version null"):
        Graph.open(tmp_path / "store")


@pytest.mark.parametrize("name", ["indptr", "indices", "features", "train_mask"])
def test_an_array_that_the_manifest_leaves_out_is_named(name: str, tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    arrays = json.loads((tmp_path / "store" / "manifest.json").read_text())["arrays"]
    del arrays[name]
    rewrite(tmp_path / "store", arrays=arrays)
    with pytest.raises(DataError, match=rf"damaged: manifest\.json lists no array '{name}'"):
        Graph.open(tmp_path / "store")


def test_an_unknown_field_is_ignored(tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    rewrite(tmp_path / "store", colour=["red"])
    assert Graph.open(tmp_path / "store", verify=True).name == "six"


@pytest.mark.parametrize("text", ['{"format": "dory', "[" * 100_000, "\x80"])
def test_a_manifest_that_is_no_json_is_reported_in_one_sentence(text: str, tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    (tmp_path / "store" / "manifest.json").write_text(text, "latin-1")
    with pytest.raises(DataError, match=r"manifest\.json is not JSON .*\. Copy or ingest it again\.$"):
        Graph.open(tmp_path / "store")


def test_a_folder_without_a_manifest_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is not a store: .* Give a folder that dorylus ingest, dorylus convert or"):
        Graph.open(tmp_path)


def test_checksums_are_compared_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_folder, "BLOCK_BYTES", 60)
    monkeypatch.setattr(array_folder, "CHECKED_BYTES", 25)
    monkeypatch.setattr(array_writer, "CHECKED_BYTES", 25)
    graph, reports = some_graph(), []
    graph.save(tmp_path / "store")
    count = store.verify_store(tmp_path / "store", lambda done, total: reports.append((done, total)))
    assert count == len(store.arrays_of(graph))
    total = sum(array.nbytes for array in store.arrays_of(graph).values())
    assert [total for _, total in reports] == [total] * len(reports)
    steps = np.diff([0] + [done for done, _ in reports])
    assert steps.min() > 0
    assert steps.max() == 50
    assert steps.sum() == total


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(place: object, name: str) -> Any:
        return really(place, name) if name != "labels.bin" else (tmp_path / "store" / "no" / name).open()

    some_graph().save(tmp_path / "store")
    really = locations._LocalFolder.open
    monkeypatch.setattr(locations._LocalFolder, "open", broken)
    with pytest.raises(DataError, match=r"damaged: labels\.bin cannot be read \(No such file or directory\)\. Copy"):
        Graph.open(tmp_path / "store", verify=True)


def test_kernels_accept_the_mapped_arrays(tmp_path: Path) -> None:
    from dorylus.graph import adjacency

    graph = communities(100, 2, 4, average_degree=4)
    graph.save(tmp_path / "store")
    ours = adjacency(Graph.open(tmp_path / "store"), norm="symmetric", self_loops=True)
    assert np.array_equal(ours.indices, adjacency(graph, norm="symmetric", self_loops=True).indices)


def with_blocks(folder: Path, blocks: Any) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["blocks"] = blocks
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ("none", 'manifest.json says blocks = "none", which is not an object'),
        ({"crc32": 1}, "manifest.json, blocks does not say bytes"),
        ({"bytes": 0, "crc32": 1}, "manifest.json, blocks says bytes = 0, which is not a whole number from 1 to 2**30"),
        ({"bytes": 65536, "crc32": -1}, "manifest.json, blocks says crc32 = -1, which is not a whole number from 0 to"),
    ],
)
def test_the_entry_about_blocks_in_a_manifest_is_checked(blocks: Any, message: str, tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    with_blocks(tmp_path / "store", blocks)
    with pytest.raises(DataError, match=re.escape(message)):
        Graph.open(tmp_path / "store")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), r"blocks\.crc32 cannot be read \(No such file or directory\)"),
        (lambda path: path.write_bytes(b"1234"), r"blocks\.crc32 has 4 bytes instead of 28"),
        (
            lambda path: path.write_bytes(b"x" * 28),
            r"the checksum of blocks\.crc32 differs from the one in manifest\.json",
        ),
    ],
)
def test_checksums_of_blocks_that_are_damaged_themselves_are_named(damage: Any, message: str, tmp_path: Path) -> None:
    some_graph().save(tmp_path / "store")
    damage(tmp_path / "store" / "blocks.crc32")
    with pytest.raises(DataError, match=rf"the store .* is damaged: {message}\. Copy or ingest it again\."):
        Graph.open(tmp_path / "store", verify=True)


def test_a_manifest_of_zeros_is_refused_before_it_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill_with_zeros: Any, little_memory: Any
) -> None:
    monkeypatch.setattr("dorylus.graph.manifest.MOST_BYTES", 1 << 20)
    some_graph().save(tmp_path / "store")
    fill_with_zeros(tmp_path / "store" / "manifest.json")
    message = r"the store .* is damaged: manifest\.json has more than 1,048,576 bytes.* Copy or ingest it again\."
    with little_memory(), pytest.raises(DataError, match=message):
        Graph.open(tmp_path / "store")


def test_checksums_of_another_size_are_refused_before_they_are_in_memory(
    tmp_path: Path, fill_with_zeros: Any, little_memory: Any
) -> None:
    some_graph().save(tmp_path / "store")
    fill_with_zeros(tmp_path / "store" / "blocks.crc32")
    with little_memory(), pytest.raises(DataError, match=r"blocks\.crc32 has 268,435,456 bytes instead of 28"):
        Graph.open(tmp_path / "store", verify=True)


@pytest.fixture
def opened(tmp_path):
    communities(num_vertices=300, num_classes=3).save(tmp_path / "watched")
    graph = Graph.open(tmp_path / "watched")
    graph.check_files()
    return graph, tmp_path / "watched" / "features.bin"


def rewritten(path, content):
    """Other bytes in the same file, its time set back."""
    times = path.stat()
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_file_that_was_changed_and_changed_back_is_refused(opened):
    graph, path = opened
    before = path.read_bytes()
    rewritten(path, bytes(64))
    rewritten(path, before)
    with pytest.raises(DataError, match=r"features\.bin was written to and back, or renamed, while it was in use"):
        graph.check_files()


def test_a_file_with_another_name_or_other_permissions_is_the_same_file(opened):
    graph, path = opened
    os.link(path, path.with_name("other"))
    graph.check_files()
    path.chmod(0o600)
    graph.check_files()
    path.unlink()
    graph.check_files()


def test_a_file_that_is_written_to_after_it_was_moved_away_is_refused(opened):
    graph, path = opened
    other = path.with_name("other")
    os.link(path, other)
    path.unlink()
    rewritten(other, bytes(64))
    os.link(other, path.with_name("third"))  # which explains the change of its time
    with pytest.raises(DataError, match=r"features\.bin was written to while it was in use"):
        graph.check_files()
