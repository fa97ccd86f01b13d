import numpy as np
import pytest
import torch
import torch.nn.functional as f
from hypothesis import given
from hypothesis import strategies as st

from dorylus.saga.sparse import SparseRows, linear


def some_rows(rng, begin, end, num_rows, columns, density):
    """Rows begin to end of a random sparse matrix, as a graph server cuts them, and the same dense."""
    whole = (rng.random((num_rows, columns)) < density) * rng.standard_normal((num_rows, columns))
    whole = whole.astype(np.float32)
    row, column = np.nonzero(whole)
    indptr = np.searchsorted(row, np.arange(num_rows + 1)).astype(np.int64)
    sparse = SparseRows(indptr[begin : end + 1], column.astype(np.int32), whole[row, column], columns)
    return sparse, torch.from_numpy(whole[begin:end])


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 40), st.integers(1, 9), st.booleans(), st.data())
def test_a_sparse_product_is_the_dense_one_and_so_is_its_gradient(seed, num_rows, columns, width, with_bias, data):
    rng = np.random.default_rng(seed)
    begin = data.draw(st.integers(0, num_rows))
    end = data.draw(st.integers(begin, num_rows))
    sparse, dense = some_rows(rng, begin, end, num_rows, columns, 0.3)
    w = torch.from_numpy(rng.standard_normal((width, columns), dtype=np.float32)).requires_grad_()
    b = torch.from_numpy(rng.standard_normal(width, dtype=np.float32)).requires_grad_() if with_bias else None
    cotangent = torch.from_numpy(rng.standard_normal((end - begin, width), dtype=np.float32))
    parameters = [w] if b is None else [w, b]

    found, expected = linear(sparse, w, b), f.linear(dense, w, b)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(
        torch.autograd.grad(found, parameters, cotangent),
        torch.autograd.grad(expected, parameters, cotangent),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_dense_rows_are_an_ordinary_linear_map():
    x, w, b = torch.randn(3, 4), torch.randn(2, 4), torch.randn(2)
    assert torch.equal(linear(x, w, b), f.linear(x, w, b))


def test_sparse_rows_know_their_shape_and_their_dense_form():
    sparse, dense = some_rows(np.random.default_rng(0), 2, 5, 6, 7, 0.4)
    assert sparse.shape == (3, 7)
    assert torch.equal(sparse.to_dense(), dense)


def test_a_cotangent_that_is_a_view_gives_the_same_gradient():
    sparse, dense = some_rows(np.random.default_rng(0), 0, 5, 5, 7, 0.5)
    w = torch.randn(3, 7, requires_grad=True)
    linear(sparse, w).sum().backward()  # the cotangent is one number, expanded
    torch.testing.assert_close(w.grad, dense.sum(0).expand(3, 7), rtol=1e-5, atol=1e-6)


def test_weights_for_fewer_columns_are_refused_rather_than_read_beyond():
    sparse, _ = some_rows(np.random.default_rng(0), 0, 5, 5, 10, 0.5)
    with pytest.raises((ValueError, RuntimeError), match="10"):
        linear(sparse, torch.randn(3, 4))
