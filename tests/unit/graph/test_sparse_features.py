"""SparseFeatures against the dense matrix it stands for."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dorylus.errors import GraphError
from dorylus.graph import SparseFeatures
from dorylus.graph.features import sparse_or_dense

matrices = arrays(
    np.float32,
    st.tuples(st.integers(0, 6), st.integers(1, 5)),
    elements=st.sampled_from([0.0, 0.0, 0.0, 1.0, -2.0, 0.5]),
)


@settings(deadline=None)
@given(matrices)
def test_dense_to_sparse_and_back_changes_nothing(dense: np.ndarray) -> None:
    sparse = SparseFeatures.from_dense(dense)
    sparse.check()
    assert sparse.shape == dense.shape
    assert sparse.num_nonzeros == np.count_nonzero(dense)
    assert np.array_equal(sparse.to_dense(), dense)


@settings(deadline=None)
@given(matrices, st.data())
def test_slices_are_the_slices_of_the_matrix(dense: np.ndarray, data: st.DataObject) -> None:
    rows = slice(data.draw(st.integers(-7, 7)), data.draw(st.integers(-7, 7)))
    sparse = SparseFeatures.from_dense(dense)
    assert np.array_equal(sparse[rows].to_dense(), dense[rows])
    assert np.array_equal(sparse.to_dense(rows), dense[rows])


@settings(deadline=None)
@given(matrices.filter(len), st.data())
def test_rows_come_in_the_requested_order(dense: np.ndarray, data: st.DataObject) -> None:
    order = np.array(data.draw(st.lists(st.integers(0, len(dense) - 1), max_size=8)), np.int32)
    sparse = SparseFeatures.from_dense(dense)
    assert np.array_equal(sparse.permute(order).to_dense(), dense[order])
    assert np.array_equal(sparse.to_dense(order), dense[order])


@settings(deadline=None)
@given(matrices)
def test_normalised_rows_sum_to_one_unless_they_sum_to_zero(dense: np.ndarray) -> None:
    found = SparseFeatures.from_dense(dense).row_normalised().to_dense()
    sums = dense.sum(axis=1, keepdims=True)
    assert np.allclose(found, np.divide(dense, sums, where=sums != 0, out=dense.copy()))


def test_slices_share_memory() -> None:
    sparse = SparseFeatures.from_dense(np.eye(4, dtype=np.float32))
    assert np.shares_memory(sparse[1:3].values, sparse.values)


def test_a_slice_with_a_step_is_refused() -> None:
    with pytest.raises(IndexError, match="permute"):
        SparseFeatures.from_dense(np.eye(4, dtype=np.float32))[::2]


def test_columns_in_any_order_are_sorted_repeats_added_and_zeros_dropped() -> None:
    sparse = SparseFeatures.from_csr([0, 4, 5], [2, 0, 2, 1, 1], [1.0, 2.0, 3.0, 0.0, 7.0], 3)
    assert sparse.indices.tolist() == [0, 2, 1]
    assert sparse.to_dense().tolist() == [[2, 0, 4], [0, 7, 0]]


BROKEN = {
    "a column beyond the last": (([0, 1, 2], [0, 3], [1, 1], 3), "row 1 .* column 3, but num_columns=3"),
    "a column below 0": (([0, 1], [-1], [1], 3), "row 0 .* column -1"),
    "columns out of order": (([0, 2], [1, 0], [1, 1], 3), "row 0 .* lists column 1 before column 0"),
    "a repeated column": (([0, 2], [1, 1], [1, 1], 3), "lists column 1 before column 1"),
    "a value that is no number": (([0, 0, 1], [2], [np.nan], 3), r"features\[1, 2\] is nan"),
    "too few values": (([0, 2], [0, 1], [1], 3), r"2 column numbers but values of shape \[1\]"),
    "offsets that fall": (([0, 2, 1], [0, 1], [1, 1], 3), "features.indptr falls from 2 to 1 at row 1"),
}


@pytest.mark.parametrize(("parts", "sentence"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_rule_is_named(parts: Any, sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        SparseFeatures(*parts).check()


def test_features_stay_sparse_only_where_it_pays() -> None:
    sparse = SparseFeatures.from_dense(np.eye(20, dtype=np.float32))
    assert sparse_or_dense(sparse) is sparse
    assert isinstance(sparse_or_dense(SparseFeatures.from_dense(np.ones((2, 2), np.float32))), np.ndarray)
