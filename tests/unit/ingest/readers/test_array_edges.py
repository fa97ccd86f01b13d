"""Edges in NumPy's files and in raw binary, against the arrays they were written from."""

import os
import tracemalloc
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from all_edges import edges_of
from hypothesis import HealthCheck, given, settings

import dorylus.ingest.readers.array_file as array_file
from dorylus.errors import DataError
from dorylus.ingest.readers.files import open_edges, open_vertices

PAIRS = np.arange(20, dtype=np.int64).reshape(10, 2) * 3
LISTED = [tuple(pair) for pair in PAIRS.tolist()]
shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)


def saved(array: Any, folder: Path, name: str = "web.npy") -> Path:
    np.save(folder / name, array, allow_pickle=True)
    return folder / name


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i4", ">i4", "u4", "i8", ">i8", "u8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("turned", [False, True])
def test_an_array_of_either_shape_order_and_any_type_is_read(
    dtype: str, order: Any, turned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_file, "BATCH_ROWS", 3)
    array = np.asarray(PAIRS.T if turned else PAIRS, dtype=dtype, order=order)
    assert edges_of(open_edges(saved(array, tmp_path))) == LISTED


@shared_folder
@given(hnp.arrays(np.int64, st.tuples(st.integers(1, 50), st.just(2)), elements=st.integers(-(2**63), 2**63 - 1)))
def test_any_pairs_are_read_back(tmp_path: Path, pairs: Any) -> None:
    assert edges_of(open_edges(saved(pairs, tmp_path), ids="map")) == [tuple(pair) for pair in pairs.tolist()]


def test_of_two_by_two_the_rows_are_edges(tmp_path: Path) -> None:
    assert edges_of(open_edges(saved(np.array([[0, 1], [2, 3]]), tmp_path))) == [(0, 1), (2, 3)]


REFUSED = {
    "floats": (np.ones((3, 2)), r"the array holds float64.*astype\(np.int64\)"),
    "three columns": (np.ones((4, 3), int), r"shape \[4, 3\]\. Edges are of shape"),
    "a vector": (np.arange(4), r"shape \[4\]"),
    "objects": (np.array([[None, 1]], dtype=object), "the array holds object"),
    "no edge": (np.empty((0, 2), int), "holds no edge"),
    "a negative vertex": (np.array([[0, 1], [2, 3], [4, -5]]), r"row 2 .*: vertex -5 is out of range.*ids='map'"),
    "a large vertex": (np.array([[0, 1], [2**31 - 1, 3]]), "row 1 .*: vertex 2147483647"),
    "a very large vertex": (np.array([[0, 1], [2**64 - 1, 3]], np.uint64), "row 1 .*: vertex 18446744073709551615"),
}


@pytest.mark.parametrize(("array", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_an_array_that_is_no_list_of_edges_is_refused(array: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=sentence):
        edges_of(open_edges(saved(array, tmp_path)))


def test_a_number_of_64_unsigned_bits_is_refused_when_mapped_too(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"row 0 .*: vertex 18446744073709551615 is out of range"):
        edges_of(open_edges(saved(np.array([[2**64 - 1, 3]], np.uint64), tmp_path), ids="map"))


@pytest.mark.parametrize("cut", [-1, 60, 200])
def test_an_array_cut_short_is_refused_before_it_is_read(cut: int, tmp_path: Path) -> None:
    path = saved(PAIRS, tmp_path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"Copy it again|an invalid header"):
        open_edges(path)


def test_a_file_that_only_looks_like_an_array_is_refused(tmp_path: Path) -> None:
    (tmp_path / "web.npy").write_bytes(b"0 1\n1 2\n")
    with pytest.raises(DataError, match="has an invalid header"):
        open_edges(tmp_path / "web.npy")


ARCHIVES = {
    "edges": {"edges": PAIRS},
    "edge_index": {"edge_index": PAIRS.T, "num_nodes": np.array(60)},
    "two vectors": {"source": PAIRS[:, 0], "destination": PAIRS[:, 1]},
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("arrays", ARCHIVES.values(), ids=ARCHIVES.keys())
def test_archives_are_read(save: Any, arrays: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_file, "BATCH_ROWS", 4)
    save(tmp_path / "web.npz", **arrays)
    assert edges_of(open_edges(tmp_path / "web.npz")) == LISTED
    save(tmp_path / "web.npz", **arrays, weight=np.arange(10) / 2)
    assert edges_of(open_edges(tmp_path / "web.npz")) == [(*pair, i / 2) for i, pair in enumerate(LISTED)]


BAD_ARCHIVES = {
    "other arrays": ({"x": PAIRS}, "has the arrays x"),
    "one end": ({"source": PAIRS[:, 0]}, "has the arrays source"),
    "float ends": ({"source": np.ones(2), "destination": np.ones(2)}, "source holds float64"),
    "ends of two lengths": ({"source": PAIRS[:3, 0], "destination": PAIRS[:, 1]}, "differ in length"),
    "a weight that is no number": (
        {"edges": PAIRS[:2], "weight": np.array([1, np.nan])},
        "row 1 .*: the weight is nan",
    ),
    "weights of another length": ({"edges": PAIRS, "weight": np.ones(3)}, "weight has 3 numbers for 10 edges"),
}


@pytest.mark.parametrize(("arrays", "sentence"), BAD_ARCHIVES.values(), ids=BAD_ARCHIVES.keys())
def test_archives_without_good_edges_are_refused(arrays: Any, sentence: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "web.npz", **arrays)
    with pytest.raises(DataError, match=sentence):
        edges_of(open_edges(tmp_path / "web.npz"))


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    pairs = np.arange(20_000).reshape(10_000, 2)
    np.savez(tmp_path / "web.npz", edges=pairs)
    whole = (tmp_path / "web.npz").read_bytes()
    (tmp_path / "web.npz").write_bytes(whole[:-30])
    with pytest.raises(DataError, match="as an archive of arrays"):
        open_edges(tmp_path / "web.npz")
    (tmp_path / "web.npz").write_bytes(whole.replace(pairs[-5:].tobytes(), pairs[:5].tobytes()))
    with pytest.raises(DataError, match=r"is damaged: Bad CRC-32"):
        edges_of(open_edges(tmp_path / "web.npz"))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_takes_no_more_memory_to_read_than_its_batches(
    save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_file, "BATCH_ROWS", 1 << 16)
    monkeypatch.setattr(array_file, "PIECE_BYTES", 1 << 14)
    pairs = np.random.default_rng(0).integers(0, 6_000_000, (1 << 17, 2))
    save(tmp_path / "web.npz", edges=pairs)
    edges = open_edges(tmp_path / "web.npz")
    tracemalloc.start()
    try:
        assert sum(batch.source.size for batch in edges) == 1 << 17
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The batch before, the rows as they lie in the file, both of their ends, and buffers: larger ones from 3.14 on.
    assert peak < 3.4 * pairs.nbytes / 2


def test_the_page_cache_keeps_no_member_of_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members lie one behind the other, and positions in them are not those in the file."""
    dropped: list[tuple[int, int]] = []
    monkeypatch.setattr(array_file, "BATCH_ROWS", 4)
    monkeypatch.setattr(os, "posix_fadvise", lambda _, begin, length, advice: dropped.append((begin, length)))
    np.savez_compressed(tmp_path / "web.npz", source=PAIRS[:, 0], destination=PAIRS[:, 1])
    for count, _ in enumerate(open_edges(tmp_path / "web.npz")):
        assert dropped == [(0, 0)] * count, "all of the file after every batch"


@pytest.mark.parametrize(
    ("name", "written", "dtype"),
    [
        ("a.i32", "<i4", None),
        ("a.i64", "<i8", None),
        ("a.bin", "<i4", "int32"),
        ("a.bin", ">i8", ">i8"),
        ("a.i32", "<u4", "u4"),
    ],
)
def test_raw_binary_is_read_by_its_suffix_or_the_type_given(
    name: str, written: str, dtype: str | None, tmp_path: Path
) -> None:
    PAIRS.astype(written).tofile(tmp_path / name)
    assert edges_of(open_edges(tmp_path / name, dtype=dtype)) == LISTED


def test_raw_binary_without_a_type_or_with_half_a_pair_is_refused(tmp_path: Path) -> None:
    PAIRS.astype("<i4").tofile(tmp_path / "a.bin")
    with pytest.raises(DataError, match="Give dtype='int32'"):
        open_edges(tmp_path / "a.bin")
    with pytest.raises(DataError, match="leave columns out"):
        open_edges(tmp_path / "a.bin", dtype="i4", columns=(1, 0))
    (tmp_path / "a.i32").write_bytes(b"0" * 20)
    with pytest.raises(DataError, match="20 bytes, which is not a whole number of pairs of int32"):
        open_edges(tmp_path / "a.i32")


def test_a_vector_is_a_list_of_vertices(tmp_path: Path) -> None:
    assert edges_of(open_vertices(saved(np.array([7, -3]), tmp_path))) == [(7, 7), (-3, -3)]
    with pytest.raises(DataError, match="A list of vertices is of shape"):
        open_vertices(saved(PAIRS, tmp_path))
