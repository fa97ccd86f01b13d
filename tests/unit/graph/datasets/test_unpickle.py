"""The reader of Planetoid pickles: arrays come out, nothing is ever called."""

import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dorylus.errors import DataError
from dorylus.graph.datasets import planetoid

sparse = pytest.importorskip("scipy.sparse")


def written(value: Any, path: Path, protocol: int = 3) -> Path:
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    return path


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<i4", "<i8", ">f4", "bool"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_numbers_come_out_as_they_went_in(dtype: str, order: Any, tmp_path: Path) -> None:
    array = np.array([[0, 1, 2], [3, 4, 5]], dtype=dtype, order=order)
    found = planetoid.read(written(array, tmp_path / "a"))
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


def test_a_sparse_matrix_comes_out_in_parts(tmp_path: Path) -> None:
    matrix = sparse.csr_matrix(np.array([[0, 2.0], [3, 0]], np.float32))
    found = planetoid.read(written(matrix, tmp_path / "m"))
    assert found.shape == (2, 2)
    assert np.array_equal(
        sparse.csr_matrix((found.data, found.indices, found.indptr), found.shape).toarray(), matrix.toarray()
    )


def test_lists_of_neighbours_come_out_as_a_dictionary(tmp_path: Path) -> None:
    neighbours = defaultdict(list, {0: [1, 2], 2: [0]})
    assert planetoid.read(written(neighbours, tmp_path / "g")) == {0: [1, 2], 2: [0]}


def test_a_pickle_of_python_2_is_read(tmp_path: Path) -> None:
    numbers = np.array([1.5, -2.0], "<f4")
    program = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR(K\x01K\x02\x85"
        b"cnumpy\ndtype\n(U\x02f4K\x00K\x01tR(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x08"
    )
    (tmp_path / "a").write_bytes(program + numbers.tobytes() + b"tb.")
    assert planetoid.read(tmp_path / "a").tolist() == [1.5, -2.0]


class Malicious:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (Path.touch, (self.marker,))


def test_a_pickle_that_calls_a_function_calls_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with pytest.raises(DataError, match="which no such file needs"):
        planetoid.read(written(Malicious(marker), tmp_path / "evil"))
    assert not marker.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"cnumpy.testing._private.utils\nrunstring\n(S'1'\ntR.",
        b"cscipy.sparse.csr\nos\n.",
        b"ccollections\ndefaultdict\n(cos\nsystem\ntR.",
    ],
)
def test_every_name_but_the_known_ones_is_refused(program: bytes, tmp_path: Path) -> None:
    (tmp_path / "evil").write_bytes(program)
    with pytest.raises(DataError, match="it asks for"):
        planetoid.read(tmp_path / "evil")


def test_a_truncated_pickle_is_one_sentence(tmp_path: Path) -> None:
    path = written(np.arange(100), tmp_path / "a")
    path.write_bytes(path.read_bytes()[:80])
    with pytest.raises(DataError, match=r"is not a Planetoid file.*fetched again"):
        planetoid.read(path)


@pytest.mark.parametrize("value", [np.array(["text"]), np.array([{}], object), "text", [1, 2]])
def test_other_pickled_objects_are_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a Planetoid file"):
        planetoid.read(written(value, tmp_path / "a"))


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        planetoid.read(tmp_path / "absent")
