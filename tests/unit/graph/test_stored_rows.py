"""Rows read from a store on request equal the stored rows."""

import numpy as np
import pytest

import dorylus
import dorylus.graph.array_files as array_files
from dorylus.errors import DataError
from dorylus.graph import SparseFeatures
from dorylus.graph.array_files import StoredRows
from dorylus.graph.store import open_vertices


@pytest.fixture
def graph():
    return dorylus.communities(num_vertices=300, num_classes=4, num_features=7, average_degree=4, seed=0)


@pytest.fixture(params=[16, 1000, 1 << 20])
def block_bytes(request, monkeypatch):
    monkeypatch.setattr(array_files, "BLOCK_BYTES", request.param)


@pytest.mark.usefixtures("block_bytes")
@pytest.mark.parametrize(
    "requested", [[], [0], [299], [5, 5, 3], [299, 0, 150, 151, 152], range(300), range(299, -1, -1)]
)
def test_any_rows_in_any_order_are_those_of_the_store(graph, tmp_path, requested):
    graph.save(tmp_path / "store")
    vertices, rows = open_vertices(tmp_path / "store"), np.array(requested, np.int32)
    np.testing.assert_array_equal(vertices.features[rows], graph.features[rows])
    np.testing.assert_array_equal(vertices.features[:, slice(2, 5)][rows], graph.features[rows, 2:5])
    np.testing.assert_array_equal(vertices.labels[rows], graph.labels[rows])
    np.testing.assert_array_equal(vertices.train_mask[rows], graph.train_mask[rows])
    assert vertices.num_vertices == len(vertices.features) == 300


@pytest.mark.usefixtures("block_bytes")
def test_sparse_rows_are_those_of_the_store(graph, tmp_path):
    few = np.where(np.random.default_rng(0).random(graph.features.shape) < 0.2, graph.features, 0)
    features = SparseFeatures.from_dense(few)
    dorylus.Graph(graph.indptr, graph.indices, features=features).save(tmp_path / "store")
    vertices, rows = open_vertices(tmp_path / "store"), np.array([7, 0, 299, 7, 150], np.int32)
    found, expected = vertices.features.permute(rows), features.permute(rows)
    for name in ("indptr", "indices", "values"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_array_equal(vertices.features.to_dense(rows), few[rows])
    assert vertices.labels is None


def test_only_blocks_that_hold_a_row_are_read(tmp_path):
    rows = np.arange(4_000_000, dtype=np.float32).reshape(-1, 1000)
    (tmp_path / "rows.bin").write_bytes(rows.tobytes())
    read = []

    class Watched:
        def __init__(self):
            self._file = (tmp_path / "rows.bin").open("rb")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self._file.close()

        def seek(self, offset):
            self._file.seek(offset)

        def read(self, count):
            read.append(count)
            return self._file.read(count)

    found = StoredRows(Watched, rows.dtype, rows.shape)[np.array([3999, 10, 12])]
    np.testing.assert_array_equal(found, rows[[3999, 10, 12]])
    assert read == [3 * 4000, 4000]


def test_a_file_that_ends_early_is_an_error_not_a_wait(tmp_path):
    (tmp_path / "rows.bin").write_bytes(b"\0" * 10)
    with pytest.raises(DataError, match="ended at byte 10, before byte 20, while it was in use"):
        StoredRows(lambda: (tmp_path / "rows.bin").open("rb"), np.dtype(np.float32), (5, 1))[np.array([4, 0])]
