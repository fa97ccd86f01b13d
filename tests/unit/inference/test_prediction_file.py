import shutil
import sys
from collections import namedtuple
from contextlib import closing

import numpy as np
import pytest

from dorylus.errors import ConfigError, DataError
from dorylus.inference import prediction_pass
from dorylus.inference.prediction_file import (
    PredictionFile,
    PredictionForm,
    StoredNumberIds,
    TextIds,
    UnnamedFile,
    check_target,
)

LOGITS = np.arange(14, dtype=np.float32).reshape(7, 2)
CLASSES = np.arange(7, dtype=np.int64)
NUMBERS = StoredNumberIds(np.arange(7) * 10**10)
TEXTS = TextIds(np.arange(8) * 2, np.frombuffer("".join(f"v{k}" for k in range(7)).encode(), np.uint8))
SUFFIXES = ["npy", "parquet"]


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(prediction_pass, "SLAB_ROWS", 3)


def form_of(array):
    return PredictionForm(len(array), array.shape[1] if array.ndim == 2 else None, array.dtype)


def write(array, path, ids=None, blocks=None, tell=None):
    with closing(PredictionFile(path, form_of(array), "logits", ids)) as file:
        return file.write(np.array_split(array, 4) if blocks is None else blocks, tell)


def read(path):
    """(vertices or None, values) of a file."""
    if path.suffix == ".npy":
        return None, np.load(path).tolist()
    from pyarrow import parquet

    table = parquet.read_table(path).to_pydict()
    assert list(table) == ["vertex", "logits"]
    return table["vertex"], table["logits"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("array", [LOGITS, CLASSES, LOGITS.astype(np.uint8)], ids=["logits", "classes", "labels"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_blocks_become_one_row_a_vertex(tmp_path, suffix, array):
    written = write(array, tmp_path / f"x.{suffix}")
    vertices, values = read(tmp_path / f"x.{suffix}")
    assert values == array.tolist()
    assert vertices in (None, list(range(7)))
    assert names(tmp_path) == [f"x.{suffix}"]
    assert (written.path, written.num_vertices, written.ids) == (tmp_path / f"x.{suffix}", 7, None)


@pytest.mark.parametrize("array", [LOGITS, CLASSES, LOGITS.astype(np.uint8)], ids=["logits", "classes", "labels"])
def test_an_npy_file_is_the_one_that_numpy_writes(tmp_path, array):
    write(array, tmp_path / "x.npy")
    np.save(tmp_path / "numpys.npy", array)
    assert (tmp_path / "x.npy").read_bytes() == (tmp_path / "numpys.npy").read_bytes()


def test_a_parquet_file_has_a_row_group_a_slab(tmp_path):
    from pyarrow import parquet

    write(LOGITS, tmp_path / "x.parquet")
    metadata = parquet.read_metadata(tmp_path / "x.parquet")
    assert [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)] == [3, 3, 1]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [(NUMBERS, [k * 10**10 for k in range(7)]), (TEXTS, [f"v{k}" for k in range(7)])],
    ids=["numbers", "texts"],
)
def test_original_ids_are_a_column_of_parquet_and_a_sibling_of_npy(tmp_path, ids, expected):
    assert write(LOGITS, tmp_path / "x.parquet", ids).ids is None
    assert read(tmp_path / "x.parquet") == (expected, LOGITS.tolist())
    assert write(LOGITS, tmp_path / "x.npy", ids).ids == tmp_path / "x.ids.npy"
    assert np.load(tmp_path / "x.ids.npy").tolist() == expected
    assert names(tmp_path) == ["x.ids.npy", "x.npy", "x.parquet"]


def test_progress_is_reported_after_every_slab(tmp_path):
    reports = []
    write(LOGITS, tmp_path / "x.npy", tell=lambda done, total: reports.append((done, total)))
    assert reports == [(3, 7), (6, 7), (7, 7)]


def failing_blocks():
    yield LOGITS[:5]
    raise KeyboardInterrupt


@pytest.mark.parametrize("ids", [None, NUMBERS])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_pass_that_fails_in_the_middle_leaves_the_old_file(tmp_path, suffix, ids):
    write(LOGITS, tmp_path / f"x.{suffix}", ids)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(KeyboardInterrupt):
        write(LOGITS, tmp_path / f"x.{suffix}", ids, failing_blocks())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_disk_that_fills_up_is_reported_in_one_sentence_and_leaves_nothing(tmp_path, suffix, monkeypatch):
    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(UnnamedFile, "settle", full)
    with pytest.raises(DataError, match=rf"x\.{suffix}: No space left on device\. Make room, or name another file\.$"):
        write(LOGITS, tmp_path / f"x.{suffix}")
    assert names(tmp_path) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_disk_without_room_is_refused_before_any_row_is_computed(tmp_path, suffix, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100, 90, 10))
    with pytest.raises(
        DataError, match=r"they take \S+ \S+, and 10 B are free there\. Make room, or name another file"
    ):
        PredictionFile(tmp_path / f"x.{suffix}", form_of(LOGITS), "logits")
    assert names(tmp_path) == []


def test_an_error_of_the_computation_is_not_reported_as_an_error_of_the_file(tmp_path):
    def blocks():
        yield LOGITS[:5]
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        write(LOGITS, tmp_path / "x.npy", blocks=blocks())
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["x.csv", "x", "no/x.npy", "folder.npy"])
def test_an_invalid_file_name_is_refused_with_the_cure(tmp_path, name):
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(ConfigError, match=r"ends in \.npy or \.parquet|no does not exist|is a folder, so name a file"):
        check_target(tmp_path / name)


def test_parquet_without_pyarrow_is_refused_with_the_cure(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r'pip install "dorylus\[tables\]"'):
        check_target(tmp_path / "x.parquet")


def test_a_flipped_bit_in_predictions_is_found_by_their_reader(tmp_path):
    """Pages have checksums."""
    from pyarrow import parquet

    path = tmp_path / "x.parquet"
    write(LOGITS, path)
    content = bytearray(path.read_bytes())
    vertices = parquet.read_metadata(path).row_group(0).column(0)
    content[vertices.data_page_offset + vertices.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(OSError, match="CRC checksum"):
        parquet.read_table(path, page_checksum_verification=True)
