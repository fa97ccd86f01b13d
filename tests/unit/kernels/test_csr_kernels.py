from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from kernel_cases import Case, cases, few

from dorylus import kernels
from dorylus.kernels import reference


def same(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    for a, b in zip(mine, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@few
@given(cases(), st.sampled_from([np.int32, np.int64]), st.booleans())
def test_build_sorts_edges_by_row_then_column_and_keeps_duplicates_in_order(
    case: Case, dtype: type, weighted: bool
) -> None:
    rows = case.rng.integers(0, case.num_rows, case.num_edges).astype(dtype)
    cols = case.indices.astype(dtype)
    values = case.vector(case.num_edges) if weighted else None
    shape = (case.num_rows, case.num_cols)
    same(kernels.csr_build(rows, cols, *shape, values), reference.csr_build(rows, cols, *shape, values))


def test_build_takes_rows_and_columns_of_different_integer_types() -> None:
    rows, cols = np.array([1, 0], np.int32), np.array([0, 1], np.int64)
    same(kernels.csr_build(rows, cols, 2, 2), reference.csr_build(rows, cols, 2, 2))


@few
@given(cases(), st.booleans(), st.booleans())
def test_transpose_keeps_only_the_asked_rows(case: Case, weighted: bool, some: bool) -> None:
    values = case.vector(case.num_edges) if weighted else None
    keep = case.rng.random(case.num_rows) < 0.5 if some else None
    arguments = (case.indptr, case.indices, case.num_cols)
    same(
        kernels.csr_transpose(*arguments, values=values, keep_rows=keep),
        reference.csr_transpose(*arguments, values=values, keep_rows=keep),
    )


@few
@given(cases(square=True), st.booleans(), st.booleans())
def test_permute_renumbers_rows_and_columns_and_adds_missing_self_loops(
    case: Case, weighted: bool, loops: bool
) -> None:
    values = case.vector(case.num_edges) if weighted else None
    order = case.rng.permutation(case.num_rows).astype(np.int32)
    same(
        kernels.csr_permute(case.indptr, case.indices, order, values=values, self_loops=loops),
        reference.csr_permute(case.indptr, case.indices, order, values=values, self_loops=loops),
    )


@few
@given(cases(), st.booleans())
def test_coalesce_merges_duplicates_and_sums_their_values(case: Case, weighted: bool) -> None:
    values = case.vector(case.num_edges) if weighted else None
    same(
        kernels.csr_coalesce(case.indptr, case.indices, values=values),
        reference.csr_coalesce(case.indptr, case.indices, values=values),
    )


@few
@given(cases(square=True, max_rows=4, max_edges=8), st.booleans())
def test_symmetry_is_found_exactly_when_it_is_there(case: Case, weighted: bool) -> None:
    values = case.rng.integers(1, 3, case.num_edges).astype(np.float32) if weighted else None
    assert kernels.csr_is_symmetric(case.indptr, case.indices, values=values) == reference.csr_is_symmetric(
        case.indptr, case.indices, values=values
    )


@few
@given(cases(square=True))
def test_a_graph_with_its_reverse_edges_is_symmetric(case: Case) -> None:
    rows = np.repeat(np.arange(case.num_rows), np.diff(case.indptr))
    both = np.concatenate([rows, case.indices]), np.concatenate([case.indices, rows])
    indptr, indices, _ = kernels.csr_build(*both, case.num_rows, case.num_rows)
    assert kernels.csr_is_symmetric(indptr, indices)


def test_one_missing_twin_breaks_symmetry() -> None:
    indptr, indices, _ = kernels.csr_build(np.array([0, 1, 1]), np.array([1, 0, 2]), 3, 3)
    assert not kernels.csr_is_symmetric(indptr, indices)


def test_a_twin_of_another_weight_breaks_symmetry() -> None:
    indptr, indices, values = kernels.csr_build(np.array([0, 1]), np.array([1, 0]), 2, 2, np.array([1, 2], np.float32))
    assert kernels.csr_is_symmetric(indptr, indices)
    assert not kernels.csr_is_symmetric(indptr, indices, values=values)


@pytest.mark.parametrize(("row", "col"), [(2, 0), (-1, 0), (0, 3), (0, -1)])
def test_an_edge_outside_the_matrix_is_named(row: int, col: int) -> None:
    with pytest.raises(ValueError, match=rf"edge 1 is \({row}, {col}\), outside 2 rows and 3 columns"):
        kernels.csr_build(np.array([0, row]), np.array([0, col]), 2, 3)


def test_an_order_that_is_no_permutation_is_refused() -> None:
    indptr, indices = np.array([0, 1, 1], np.int64), np.array([0], np.int32)
    with pytest.raises(ValueError, match=r"order is not a permutation of 2 rows: order\[1\] is 1"):
        kernels.csr_permute(indptr, indices, np.array([1, 1], np.int32))


def test_rows_out_of_order_are_refused_where_order_matters() -> None:
    indptr, indices = np.array([0, 2, 2], np.int64), np.array([1, 0], np.int32)
    for function in (kernels.csr_coalesce, kernels.csr_is_symmetric):
        with pytest.raises(ValueError, match="row 0 is not in ascending order"):
            function(indptr, indices)


@pytest.mark.parametrize("indptr", [[1, 2], [0, 1], [0, 3], []])
def test_offsets_that_miss_the_edges_are_refused(indptr: list[int]) -> None:
    with pytest.raises(ValueError, match="indptr"):
        kernels.csr_transpose(np.array(indptr, np.int64), np.array([0, 0], np.int32), 1)


def test_falling_offsets_are_refused() -> None:
    with pytest.raises(ValueError, match="indptr falls at row 1"):
        kernels.csr_coalesce(np.array([0, 2, 1, 2], np.int64), np.array([0, 0], np.int32))


def test_a_column_outside_the_matrix_is_refused_by_the_transpose() -> None:
    with pytest.raises(ValueError, match="outside 1 rows and 2 columns"):
        kernels.csr_transpose(np.array([0, 1], np.int64), np.array([2], np.int32), 2)
