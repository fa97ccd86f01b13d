"""Features, labels and splits reach the store as they are in their files, or are refused by name of the row."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import dorylus.ingest.row_files as row_files
from dorylus.errors import DataError, GraphError
from dorylus.graph import Graph
from dorylus.ingest.row_files import open_rows

EDGES = ([0, 1, 2], [1, 2, 4])
N = 6


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "BLOCK_BYTES", 16)


def npy(folder: Path, name: str, array: Any) -> Path:
    np.save(folder / f"{name}.npy", array)
    return folder / f"{name}.npy"


def ingested(folder: Path, **files: Any) -> Graph:
    """The graph of some edges and the arrays that are given, each from a file."""
    paths = {name: array if isinstance(array, Path) else npy(folder, name, array) for name, array in files.items()}
    return Graph.ingest(EDGES, folder / "store", **paths)


@pytest.mark.parametrize("dtype", ["<f4", "<f2", "<f8", "<i4", "|b1", ">f4"])
def test_features_of_any_number_type_become_float32(dtype: str, tmp_path: Path) -> None:
    array = (np.arange(N * 3).reshape(N, 3) % 5).astype(dtype)
    graph = ingested(tmp_path, features=array)
    assert isinstance(graph.features, np.ndarray)
    assert graph.features.dtype == np.float32
    assert np.array_equal(graph.features, array.astype(np.float32))
    assert graph.num_vertices == N, "the features determine the number of vertices"


def test_labels_and_splits_come_through(tmp_path: Path) -> None:
    labels = np.array([2, 0, 1, -1, 0, 2], np.int16)
    graph = ingested(tmp_path, labels=labels, train=np.array([4, 0]), val=np.arange(N) == 1, test=np.array([5], "u1"))
    assert graph.labels is not None
    assert graph.labels.tolist() == labels.tolist()
    assert graph.num_classes == 3
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    assert [np.flatnonzero(mask).tolist() for mask in masks] == [[0, 4], [1], [5]]
    assert Graph.open(tmp_path / "store", verify=True).num_features == 0


def test_arrays_are_accepted_like_files(tmp_path: Path) -> None:
    rows: dict[str, Any] = {
        "features": np.arange(N * 3.0).reshape(3, N).T,
        "labels": [0, 1, 0, 1, -1, 0],
        "train": np.arange(N) < 2,
        "val": np.array([3, 5]),
        "test": np.array([5]),
    }
    graph = Graph.ingest(EDGES, tmp_path / "store", **rows)
    assert np.array_equal(graph.features, rows["features"])
    assert graph.labels is not None
    assert graph.labels.tolist() == rows["labels"]
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    assert [np.flatnonzero(mask).tolist() for mask in masks] == [[0, 1], [3, 5], [5]]


@pytest.mark.parametrize("rows", [5, [1j, 2j], {"a": 1}])
def test_input_that_is_no_array_of_numbers_is_refused(rows: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"labels are given as .*: give an array of numbers, or a \.npy"):
        Graph.ingest(EDGES, tmp_path / "store", labels=rows)


def test_classes_by_name_are_to_be_numbered(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"class": ["a", "b"]}), tmp_path / "labels.parquet")
    for labels in (["a", "b"], tmp_path / "labels.parquet"):
        with pytest.raises(DataError, match=r": number the classes from 0 \(np\.unique\(labels, return_inverse=True\)"):
            Graph.ingest(EDGES, tmp_path / "store", labels=labels)
    with pytest.raises(DataError, match="its columns must be numbers"):
        Graph.ingest(EDGES, tmp_path / "store", features=tmp_path / "labels.parquet")


def test_labels_of_no_vertex_are_of_any_type(tmp_path: Path) -> None:
    assert Graph.ingest(([], []), tmp_path / "store", labels=[]).num_vertices == 0


def test_an_array_of_zeros_and_ones_is_no_mask_unless_it_is_bool(tmp_path: Path) -> None:
    mask, labels = np.array([1, 0, 0, 1, 0, 0], "u1"), np.zeros(N, int)
    with pytest.raises(GraphError, match="train_mask from the array train_mask names vertex 0 twice"):
        Graph.ingest(EDGES, tmp_path / "store", labels=labels, train=mask)
    graph = Graph.ingest(EDGES, tmp_path / "store", labels=labels, train=mask.astype(bool))
    assert np.flatnonzero(graph.train_mask).tolist() == [0, 3]


def test_several_labels_a_vertex_come_through(tmp_path: Path) -> None:
    labels = np.arange(N * 2).reshape(N, 2) % 3 == 0
    graph = ingested(tmp_path, labels=labels, train=np.array([3]))
    assert graph.labels is not None
    assert graph.labels.tolist() == labels.astype(int).tolist()
    assert (graph.multilabel, graph.num_classes) == (True, 2)


def test_parquet_gives_columns_and_lists(tmp_path: Path) -> None:
    wide = np.arange(N * 2, dtype=np.float32).reshape(N, 2)
    parquet.write_table(pa.table({"a": wide[:, 0], "b": wide[:, 1]}), tmp_path / "columns.parquet")
    parquet.write_table(pa.table({"x": wide.tolist()}), tmp_path / "lists.parquet")
    parquet.write_table(pa.table({"y": [0, 1, 0, 1, -1, 2]}), tmp_path / "labels.parquet")
    for name in ("columns", "lists"):
        rows = open_rows(tmp_path / f"{name}.parquet", "features")
        assert rows.shape == (N, 2)
        assert np.array_equal(np.concatenate(list(rows.blocks())), wide)
    graph = ingested(tmp_path, features=tmp_path / "lists.parquet", labels=tmp_path / "labels.parquet")
    assert np.array_equal(graph.features, wide)
    assert graph.num_classes == 3


def bad(row: int, column: int, value: float) -> Any:
    features = np.zeros((N, 3))
    features[row, column] = value
    return features


LABELS = np.array([0, 1, -1, 0, 0, 0])
REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a feature": ({"features": bad(4, 2, np.nan)}, GraphError, "features of vertex 4 in .* have nan in column 2"),
    "a feature too large": ({"features": bad(3, 0, 1e300)}, GraphError, "features of vertex 3 in .* have inf"),
    "flat features": ({"features": np.zeros(N)}, DataError, r"shape \[6\]: features are \[vertices, columns\]"),
    "texts": ({"features": np.array([["a"]])}, DataError, "save numbers row by row"),
    "columns first": ({"features": np.zeros((N, 2), order="F")}, DataError, "column by column"),
    "a label": ({"labels": np.array([0, 1, 2, 3, -2, 0])}, GraphError, "the label of vertex 4 in .* is -2"),
    "a label too large": (
        {"labels": np.array([0, 1, 2**31, 0])},
        GraphError,
        "label of vertex 2 in .* is 2147483648: ",
    ),
    "fractions": ({"labels": np.zeros(N)}, GraphError, r"labels come from .*labels\.npy as float64 of shape \[6\]"),
    "classes by name": (
        {"labels": np.array(["a", "b"])},
        DataError,
        "labels.npy holds <U1 .*: number the classes from 0",
    ),
    "few labels": ({"features": np.zeros((N, 1)), "labels": np.zeros(3, int)}, DataError, "has 6 rows, .* has 3 rows"),
    "few rows": ({"features": np.zeros((3, 1))}, GraphError, "edge 2 -> 4 .* names vertex 4"),
    "no labels": ({"train": np.array([1])}, DataError, "a split is given without labels"),
    "no label": (
        {"labels": LABELS, "val": np.array([0, 2])},
        GraphError,
        r"val_mask from .*val\.npy selects vertex 2, whose label in .*labels\.npy is -1",
    ),
    "no vertex": ({"labels": LABELS, "train": np.array([0, 1, 9])}, GraphError, r"names vertex 9 \(entry 2\)"),
    "a mask of numbers": (
        {"labels": np.zeros(N, int), "train": np.array([1, 0, 2, 3, 4, 0], "u1")},
        GraphError,
        r"train_mask from .*train\.npy names vertex 0 twice, again in entry 5: .* make it bool",
    ),
    "a vertex twice, far apart": (
        {"labels": np.zeros(N, int), "val": np.array([1, 2, 3, 4, 1])},
        GraphError,
        "val_mask from .* names vertex 1 twice, again in entry 4",
    ),
    "no numbers": ({"labels": LABELS, "train": np.zeros(6)}, GraphError, "give the numbers of its vertices"),
    "a split of those trained on": (
        {"labels": np.zeros(N, int), "train": np.array([0, 3, 4]), "test": np.array([5, 4, 3])},
        GraphError,
        "vertex 3 is in train_mask and in test_mask, and so are 2 in all",
    ),
    "no file": ({"features": Path("nowhere.npy")}, DataError, "cannot read features from nowhere.npy: No such file"),
    "no such kind": ({"features": Path("x.csv")}, DataError, "give a .npy or .parquet file"),
}


@pytest.mark.parametrize(("files", "error", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_input_is_refused_in_one_sentence_and_leaves_nothing(
    files: dict[str, Any], error: type[Exception], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=sentence):
        ingested(tmp_path, **files)
    assert [each.name for each in tmp_path.iterdir() if "store" in each.name] == []


@pytest.mark.parametrize("name", ["a.npy", "a.parquet"])
def test_a_file_that_is_something_else_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("something else, and long enough")
    with pytest.raises(DataError, match=rf"{name} is not a (\.npy|Parquet) file"):
        open_rows(tmp_path / name, "features")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = npy(tmp_path, "features", np.zeros((N, 3)))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"features\.npy has 271 bytes instead of 272"):
        open_rows(path, "features")


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ([[1.0], [1.0, 2.0]], r"row 1 of .*x\.parquet, .* has a list of 2 in column 'x', but row 0 has one of 1"),
        ([[1.0, 2.0], [3.0, 4.0, 5.0], [6.0], [7.0, 8.0]], r"row 1 of .* a list of 3 .* but row 0 has one of 2"),
        ([[1, 0], [0, 1], [1], [0, 0, 1]], r"row 2 of .* a list of 1 .* but row 0 has one of 2"),
        ([[1.0], [2.0], []], r"row 2 of .* a list of 0 .* but row 0 has one of 1"),
        ([[1.0], [2.0], None], r"row 2 of .* is empty in column 'x'"),
        ([[1.0, 2.0], [2.0, 3.0], [1.0, None]], r"row 2 of .* has an empty value in its list .* at position 1"),
        ([1.0, None], r"row 1 of .* is empty in column 'x'"),
        (["a", "b"], "its columns must be numbers"),
    ],
)
def test_parquet_that_is_no_matrix_is_refused(
    column: Any, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "PARQUET_BLOCK_ROWS", 2)
    parquet.write_table(pa.table({"x": column}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=sentence):
        list(open_rows(tmp_path / "x.parquet", "features").blocks())


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 2)])
def test_lists_of_any_kind_are_rows(kind: pa.DataType, tmp_path: Path) -> None:
    rows = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    parquet.write_table(pa.table({"x": pa.array(rows, kind)}), tmp_path / "x.parquet")
    assert np.concatenate(list(open_rows(tmp_path / "x.parquet", "features").blocks())).tolist() == rows


def test_wide_rows_of_parquet_come_in_blocks_of_few_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "BLOCK_BYTES", 64)
    parquet.write_table(pa.table({"x": np.zeros((N, 8), np.float32).tolist()}), tmp_path / "x.parquet")
    rows = open_rows(tmp_path / "x.parquet", "features")
    assert rows.dtype == np.float64, "as Python's floats are stored"
    assert [len(block) for block in rows.blocks()] == [1] * N


def test_the_given_number_of_vertices_must_be_that_of_the_files(tmp_path: Path) -> None:
    path = npy(tmp_path, "features", np.zeros((N, 1)))
    with pytest.raises(DataError, match=r"num_vertices=7, but .*features\.npy has 6 rows, one per vertex"):
        Graph.ingest(EDGES, tmp_path / "store", features=path, num_vertices=7)


def test_features_too_large_for_float16_are_refused_by_vertex_and_column(tmp_path: Path) -> None:
    features = np.ones((N, 3), np.float32)
    features[4, 1] = 7e4
    with pytest.raises(GraphError, match=r"vertex 4, column 1.*reaches to 65504"):
        Graph.ingest(EDGES, tmp_path / "store", features=npy(tmp_path, "x", features), feature_dtype="float16")
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_a_store_without_features_has_none_in_two_bytes(tmp_path: Path) -> None:
    graph = Graph.ingest(EDGES, tmp_path / "store", feature_dtype="float16")
    assert (graph.num_features, graph.feature_dtype) == (0, np.float32)


def test_a_flipped_bit_in_labels_with_checksums_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    values = np.arange(6000)
    path = tmp_path / "x.parquet"
    parquet.write_table(
        pa.table({"x": values}), path, compression="none", use_dictionary=False, write_page_checksum=True,
        row_group_size=1000,
    )  # fmt: skip
    content = bytearray(path.read_bytes())
    content[content.index(values[3500:3510].tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.parquet.*CRC checksum.* Copy or write it again"):
        Graph.ingest(([0, 1], [1, 2]), tmp_path / "store", labels=path)
    assert [each.name for each in tmp_path.iterdir()] == ["x.parquet"]


@pytest.mark.parametrize("suffix", ["npy", "parquet"])
def test_rows_that_change_after_they_were_looked_at_are_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"y.{suffix}"

    def write(labels: list[int]) -> None:
        parquet.write_table(pa.table({"y": labels}), path) if suffix == "parquet" else np.save(path, labels)

    write([0, 1, 2])
    rows = open_rows(path, "labels")
    write([2, 1, 0])
    with pytest.raises(DataError, match=rf"y\.{suffix} changed while it was read.* Ingest it again"):
        list(rows.blocks())
