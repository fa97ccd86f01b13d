"""A file read as pyarrow reads it, and no further than memory allows."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import dorylus.ingest.budget as budget
import dorylus.ingest.readers.input_file as input_file
import dorylus.ingest.row_files as row_files
from dorylus.errors import ConfigError
from dorylus.graph import Graph
from dorylus.ingest.readers.input_file import UncachedFile
from dorylus.ingest.row_files import ParquetRows


def test_a_file_is_read_from_any_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_file, "PIECE_BYTES", 3)
    (tmp_path / "x").write_bytes(bytes(range(20)))
    file = UncachedFile(tmp_path / "x")
    assert (file.read(7), file.tell()) == (bytes(range(7)), 7)
    assert file.seek(-2, os.SEEK_END) == 18
    assert file.read(9) == bytes([18, 19]), "fewer at the end"
    assert file.seek(-1, os.SEEK_CUR) == 19
    assert (file.read(1), file.largest) == (bytes([19]), 9)
    file.close()
    assert file.closed


def test_a_read_beyond_the_limit_is_refused_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_file, "resident_bytes", lambda: 1000)
    (tmp_path / "x").write_bytes(bytes(200))
    file = UncachedFile(tmp_path / "x", limit=1200)
    file.read(100)
    with pytest.raises(ConfigError, match=r"first row of .*x takes .* memory is 1,200 bytes: .* smaller pages"):
        file.read(101)
    file.limit = None
    assert len(file.read(101)) == 100


def wide(folder: Path) -> Path:
    columns = {f"c{number}": np.random.default_rng(number).standard_normal(4000) for number in range(4)}
    parquet.write_table(pa.table(columns), folder / "wide.parquet", use_dictionary=False)
    return folder / "wide.parquet"


def test_a_first_row_whose_pages_pass_the_limit_of_an_ingest_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = wide(tmp_path)
    monkeypatch.setattr(input_file, "resident_bytes", lambda: (300 << 20) - 1000)
    with pytest.raises(ConfigError, match=r"first row of .*wide\.parquet takes"):
        Graph.ingest(([0, 1], [1, 2]), tmp_path / "store", features=path, memory="300MiB")
    assert not (tmp_path / "store").exists()


def test_pages_held_while_rows_are_read_count_as_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, base = wide(tmp_path), 100 << 20
    for module in (budget, row_files, input_file):
        monkeypatch.setattr(module, "resident_bytes", lambda: base)
    page_bytes = 8 * 4000
    assert ParquetRows(path, "features", 2 * base).resident_bytes - base > 4 * page_bytes
