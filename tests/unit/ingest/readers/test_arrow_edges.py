"""Edges in columns of Parquet and Arrow, against the tables they were written from."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from all_edges import edges_of
from pyarrow import feather, ipc, parquet

import dorylus.ingest.readers.arrow as arrow
from dorylus.errors import DataError
from dorylus.ingest.readers.files import open_edges, open_vertices


def write_file(table: pa.Table, path: Path) -> None:
    with ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


def write_stream(table: pa.Table, path: Path) -> None:
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


FORMATS: dict[str, tuple[str, Callable[[pa.Table, Path], None]]] = {
    "parquet": ("web.parquet", lambda table, path: parquet.write_table(table, path, row_group_size=7)),
    "arrow file": ("web.arrow", write_file),
    "arrow stream": ("web.arrows", write_stream),
    "feather": ("web.feather", lambda table, path: feather.write_feather(table, str(path))),
}
formats = pytest.mark.parametrize("form", FORMATS)


def written(columns: dict[str, Any], form: str, folder: Path) -> Path:
    name, write = FORMATS[form]
    write(pa.table(columns), folder / name)
    return folder / name


@formats
@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint64()])
def test_columns_of_numbers_are_ends(form: str, kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "MAX_EDGES", 5)
    columns = {"a": pa.array(range(30), kind), "b": pa.array(range(1, 31), kind)}
    assert edges_of(open_edges(written(columns, form, tmp_path))) == [(i, i + 1) for i in range(30)]


@formats
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())])
def test_columns_of_strings_are_names(form: str, kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "MAX_EDGES", 5)
    names = [f"é{i % 9}" for i in range(31)]
    column = pa.array(names).cast(kind) if not pa.types.is_dictionary(kind) else pa.array(names).dictionary_encode()
    columns = {"a": column[:-1], "b": column[1:]}
    assert edges_of(open_edges(written(columns, form, tmp_path))) == list(pairwise(names))


@formats
def test_columns_are_chosen_by_name_or_position(form: str, tmp_path: Path) -> None:
    path = written({"kind": ["x", "y"], "w": [0.5, 2.0], "to": [1, 2], "from": [0, 1]}, form, tmp_path)
    assert edges_of(open_edges(path, columns=("from", "to", "w"))) == [(0, 1, 0.5), (1, 2, 2.0)]
    assert edges_of(open_edges(path, columns=(3, 2))) == [(0, 1), (1, 2)]
    with pytest.raises(DataError, match=r"has 4 columns \('kind', 'w', 'to', 'from'\)"):
        open_edges(path)
    with pytest.raises(DataError, match="no column 'dst'"):
        open_edges(path, columns=("from", "dst"))


def test_a_third_column_is_the_weight_and_numbers_may_be_names(tmp_path: Path) -> None:
    path = written({"a": [1, 2], "b": [3, 4], "w": [1, 2]}, "parquet", tmp_path)
    assert edges_of(open_edges(path)) == [(1, 3, 1.0), (2, 4, 2.0)]
    assert edges_of(open_edges(path, ids="strings")) == [("1", "3", 1.0), ("2", "4", 2.0)]


def test_the_first_column_may_list_vertices(tmp_path: Path) -> None:
    path = written({"id": ["a", "b"], "age": [3, 4]}, "parquet", tmp_path)
    assert edges_of(open_vertices(path)) == [("a", "a"), ("b", "b")]


@formats
def test_names_come_in_batches_of_few_bytes(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "NAME_BYTES", 100)
    names = [letter * length for letter, length in zip("abcdefgh", [1, 300, 40, 40, 1, 1, 1, 90], strict=True)]
    for column in (pa.array(names), pa.array(names).dictionary_encode()):
        edges = open_edges(written({"a": column, "b": column}, form, tmp_path))
        assert edges_of(edges) == [(name, name) for name in names]
        most = max(batch.source.bytes.size for batch in edges if len(batch.source) > 1)
        assert most <= 100


REFUSED = {
    "floats": ({"a": [0.0], "b": [1.0]}, r"'a' holds double\. Ends of edges are whole numbers or strings"),
    "numbers and strings": ({"a": [0], "b": ["x"]}, "one holds numbers and one strings"),
    "a missing end": ({"a": [0, 1, 2], "b": [1, 2, None]}, r"row 2 .*: 'b' is missing"),
    "a missing weight": ({"a": [0, 1], "b": [1, 2], "w": [None, 1.0]}, r"row 0 .*: 'w' is missing"),
    "a weight that is no number": ({"a": [0, 1], "b": [1, 2], "w": [1.0, float("nan")]}, "row 1 .*: the weight is nan"),
    "a weight that is a word": ({"a": [0], "b": [1], "w": ["x"]}, r"the weight 'w' holds string\. Weights are numbers"),
    "a negative vertex": ({"a": [0] * 9, "b": [1] * 8 + [-1]}, "row 8 .*: vertex -1 is out of range"),
    "an empty name": ({"a": ["x", "y"], "b": ["z", ""]}, "row 1 .*: an id is empty"),
    "one column": ({"a": [0]}, "has 1 columns"),
}


@formats
@pytest.mark.parametrize(("columns", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_columns_that_cannot_be_edges_are_refused(
    form: str, columns: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=sentence):
        edges_of(open_edges(written(columns, form, tmp_path)))


def test_names_are_refused_where_numbers_are_required(tmp_path: Path) -> None:
    path = written({"a": ["x"], "b": ["y"]}, "parquet", tmp_path)
    with pytest.raises(DataError, match="holds strings, but ids='dense'"):
        open_edges(path, ids="dense")


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    path = written({"a": pa.array([], pa.int64()), "b": pa.array([], pa.int64())}, "parquet", tmp_path)
    with pytest.raises(DataError, match="holds no edge"):
        open_edges(path)


@formats
def test_a_file_cut_short_or_of_another_kind_is_refused(form: str, tmp_path: Path) -> None:
    path = written({"a": range(1000), "b": range(1000)}, form, tmp_path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"0 1\n" * 10):
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"cannot read {path}"):
            edges_of(open_edges(path))


def flipped_in(path: Path, needle: bytes) -> None:
    """Flips the lowest bit of the third byte of a number that lies plain in a file."""
    content = bytearray(path.read_bytes())
    content[content.index(needle) + 2] ^= 1
    path.write_bytes(content)


def written_plain(path: Path, *, checksums: bool, **columns: Any) -> Path:
    """A Parquet file whose numbers lie as they are."""
    parquet.write_table(
        pa.table(columns), path, compression="none", use_dictionary=False, write_page_checksum=checksums
    )
    return path


def test_a_flipped_bit_in_a_page_with_a_checksum_is_refused(tmp_path: Path) -> None:
    columns = {"source": np.arange(1000), "target": np.arange(1000)[::-1]}
    path = written_plain(tmp_path / "edges.parquet", checksums=True, **columns)
    assert open_edges(path).unchecked == []
    flipped_in(path, np.arange(500, 510).tobytes())
    with pytest.raises(DataError, match=r"edges\.parquet.*CRC checksum.* Copy or write it again"):
        edges_of(open_edges(path))


def test_a_parquet_file_without_checksums_is_known(tmp_path: Path) -> None:
    columns = {"source": ["a", "b"], "target": ["b", "c"]}
    with_dictionary = tmp_path / "with.parquet"
    parquet.write_table(pa.table(columns), with_dictionary, write_page_checksum=True)
    without = written_plain(tmp_path / "without.parquet", checksums=False, **columns)
    source = open_edges(tmp_path)
    assert edges_of(source) == 2 * [("a", "b"), ("b", "c")]
    assert source.unchecked == [without]
