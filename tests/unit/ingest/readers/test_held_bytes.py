"""The memory that reading a file takes, computed from its headers, and refused where it is too much."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

import dorylus.ingest.readers.files as files
from dorylus.errors import ConfigError
from dorylus.ingest.budget import resident_bytes
from dorylus.ingest.entry_point import ingest_edges
from dorylus.ingest.readers.files import open_edges

ROWS = 50_000
NUMBERS = pa.table({name: np.random.default_rng(0).integers(0, 1 << 40, ROWS) for name in "abw"})
NAMES = pa.array([f"{number:0200d}" for number in range(2000)])
PLACES = pa.array(np.arange(ROWS, dtype=np.int32) % 2000)
DICTIONARIES = pa.table(dict.fromkeys("ab", pa.DictionaryArray.from_arrays(PLACES, NAMES)))
DICTIONARY_BYTES = 2000 * 200


@pytest.fixture(autouse=True)
def every_byte_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BUFFERS_BYTES", 0)


def held(path: Path, **options: Any) -> int:
    return open_edges(path, ids="map", **options).held.num_bytes


def as_feather(table: pa.Table, path: Path, compression: str, rows: int = ROWS) -> Path:
    feather.write_feather(table, str(path), compression=compression, chunksize=rows)
    return path


def as_stream(table: pa.Table, path: Path, compression: str, rows: int = ROWS) -> Path:
    packing = None if compression == "uncompressed" else compression
    with ipc.new_stream(path, table.schema, options=ipc.IpcWriteOptions(compression=packing)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


arrow_forms = pytest.mark.parametrize(("write", "name"), [(as_feather, "e.feather"), (as_stream, "e.arrows")])


@arrow_forms
def test_uncompressed_arrow_files_hold_no_memory(write: Any, name: str, tmp_path: Path) -> None:
    assert held(write(NUMBERS, tmp_path / name, "uncompressed")) == 0


@arrow_forms
def test_a_large_batch_that_is_not_packed_is_read_in_parts(write: Any, name: str, tmp_path: Path) -> None:
    ends = np.zeros(6 << 20, np.int64)
    path = write(pa.table({"a": ends, "b": ends}), tmp_path / name, "uncompressed", ends.size)
    edges = open_edges(path)
    before = resident_bytes()
    most = max(resident_bytes() for batch in edges if batch.source.sum() == batch.destination.sum() == 0)
    assert most - before < path.stat().st_size / 2


@arrow_forms
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_the_largest_batch_of_packed_arrow_is_held(write: Any, name: str, compression: str, tmp_path: Path) -> None:
    path = write(NUMBERS, tmp_path / name, compression)
    unpacked, stored = 3 * 8 * ROWS, path.stat().st_size
    assert unpacked + 0.9 * stored < held(path) <= unpacked + stored
    two = held(path, columns="a,b")
    assert 2 * 8 * ROWS + stored * 1.2 < two < 2 * 8 * ROWS + stored * 4 / 3, "of two columns, what is copied of them"
    assert held(write(NUMBERS, path, compression, rows=5000)) < (unpacked + stored) / 9


@arrow_forms
@pytest.mark.parametrize("compression", ["lz4", "uncompressed"])
def test_dictionaries_are_held(write: Any, name: str, compression: str, tmp_path: Path) -> None:
    found = held(write(DICTIONARIES, tmp_path / name, compression))
    batch = 0 if compression == "uncompressed" else 2 * 4 * ROWS
    assert 2 * DICTIONARY_BYTES + batch < found < 3 * DICTIONARY_BYTES + 2 * batch


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_the_dictionaries_of_parquet_are_held(compression: str, tmp_path: Path) -> None:
    path, strings = tmp_path / "e.parquet", DICTIONARIES.cast(pa.schema([("a", pa.string()), ("b", pa.string())]))
    parquet.write_table(strings, path, compression=compression)
    assert 2 * 2 * DICTIONARY_BYTES < held(path) < 2 * 3 * 1.1 * DICTIONARY_BYTES
    assert held(path, columns="b,a") == held(path)
    parquet.write_table(strings, path, compression=compression, use_dictionary=False, data_page_size=1 << 16)
    assert held(path) < 4.1 * (1 << 18)


def test_dictionaries_of_parquet_are_read_as_the_names_they_hold(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    parquet.write_table(DICTIONARIES.slice(0, 4), path)
    (batch,) = open_edges(path)
    assert batch.source.to_list() == NAMES[:4].to_pylist()
    with parquet.ParquetFile(path) as file:
        assert pa.types.is_dictionary(file.schema_arrow.types[0]), "which it would not be without a note in the file"


def test_too_much_memory_is_refused_with_the_file_and_a_sufficient_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = np.zeros(9_000_000, np.int64)
    path = as_feather(pa.table({"a": ends, "b": ends}), tmp_path / "e.feather", "lz4", 1 << 30)
    edges = open_edges(path)
    monkeypatch.setattr("dorylus.ingest.pipeline.resident_bytes", lambda: 60 << 20)
    with pytest.raises(
        ConfigError, match=rf"137.9 MiB of them to unpack .* of {path}, .* smaller record batches"
    ) as refused:
        ingest_edges(edges, tmp_path / "store", memory="256MiB")
    assert not (tmp_path / "store").exists()
    least = str(refused.value).split("at least ")[1].split(",")[0]
    assert ingest_edges(edges, tmp_path / "store", memory=least.replace(" ", "")).num_read == 9_000_000


def test_a_list_of_vertices_that_takes_too_much_memory_is_refused(tmp_path: Path) -> None:
    ids = as_feather(pa.table({"id": np.zeros(9_000_000, np.int64)}), tmp_path / "v.feather", "lz4", 1 << 30)
    with pytest.raises(ConfigError, match=f"to unpack .* of {ids}"):
        ingest_edges((np.array([0]), np.array([1])), tmp_path / "store", vertices=ids, memory="256MiB")
