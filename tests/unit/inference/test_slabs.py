import numpy as np
import pytest

from dorylus.inference import prediction_pass as module
from dorylus.inference.prediction_pass import PredictionForm, slabs


@pytest.fixture
def three_rows(monkeypatch):
    monkeypatch.setattr(module, "SLAB_ROWS", 3)


@pytest.mark.parametrize("sizes", [[10], [1] * 10, [4, 6], [3, 3, 3, 1], [0, 10, 0]])
def test_blocks_of_any_size_become_slabs_of_one(three_rows, sizes):
    rows = np.arange(20, dtype=np.float32).reshape(10, 2)
    blocks = np.split(rows, np.cumsum(sizes)[:-1])
    found = [slab.copy() for slab in slabs(blocks, PredictionForm(10, 2, rows.dtype))]
    assert [len(slab) for slab in found] == [3, 3, 3, 1]
    np.testing.assert_array_equal(np.concatenate(found), rows)


def test_a_block_may_be_overwritten_once_the_next_is_requested(three_rows):
    def blocks():
        block = np.empty(2, np.int64)
        for first in range(0, 8, 2):
            block[:] = first, first + 1
            yield block

    found = [slab.copy() for slab in slabs(blocks(), PredictionForm(8, None, np.dtype(np.int64)))]
    assert np.concatenate(found).tolist() == list(range(8))


@pytest.mark.parametrize(("columns", "rows"), [(None, 131_072), (1, 131_072), (64, 32_768), (4_000_000, 1)])
def test_a_slab_takes_little_memory_however_wide_rows_are(columns, rows):
    assert len(PredictionForm(10**9, columns, np.dtype(np.float32)).slab) == rows


def test_a_form_knows_its_shape_and_bytes():
    assert PredictionForm(5, 3, np.dtype(np.float32)).shape == (5, 3)
    assert PredictionForm(5, 3, np.dtype(np.float32)).num_bytes == 60
    assert PredictionForm(5, None, np.dtype(np.int64)).shape == (5,)
