from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from kernel_cases import WIDTHS, Case, agree, cases, close, differences, few, large_case, widths

from dorylus.backends import native, reference


def options_of(case: Case, values: bool, row_scale: bool, col_scale: bool) -> dict[str, Any]:
    return {
        "values": case.vector(case.num_edges) if values else None,
        "row_scale": case.vector(case.num_rows) if row_scale else None,
        "col_scale": case.vector(case.num_cols) if col_scale else None,
    }


flags = st.booleans()


@few
@given(cases(), widths, flags, flags, flags, flags, flags, flags)
def test_spmm_is_the_weighted_sum_of_neighbours(
    case: Case, width: int, values: bool, row_scale: bool, col_scale: bool, mean: bool, accumulate: bool, bf16: bool
) -> None:
    x = case.bf16(case.num_cols, width) if bf16 else case.matrix(case.num_cols, width)
    options = options_of(case, values, row_scale, col_scale) | {"mean": mean, "accumulate": accumulate}
    out = case.matrix(case.num_rows, width)
    agree("spmm", [case.indptr, case.indices, x], [out], case.begin, case.end, **options)


@pytest.mark.parametrize("width", [*WIDTHS, 602, 1433])
@pytest.mark.parametrize("accumulate", [False, True])
def test_spmm_serves_every_width(width: int, accumulate: bool) -> None:
    case = large_case(40, 200)
    x, out = case.matrix(40, width), case.matrix(40, width)
    agree("spmm", [case.indptr, case.indices, x], [out], 3, 37, accumulate=accumulate)


def test_a_row_does_not_depend_on_the_range_it_is_computed_in() -> None:
    case = large_case()
    x = case.matrix(300, 41)
    whole, cut = np.zeros((300, 41), np.float32), np.zeros((300, 41), np.float32)
    native.spmm(case.indptr, case.indices, x, whole, 0, 300, values=case.vector(case.num_edges) * 0 + 0.3)
    for begin, end in ((0, 1), (1, 150), (150, 299), (299, 300)):
        native.spmm(case.indptr, case.indices, x, cut, begin, end, values=case.vector(case.num_edges) * 0 + 0.3)
    np.testing.assert_array_equal(whole, cut)


def test_rows_written_into_a_padded_buffer_leave_the_padding_alone() -> None:
    case = large_case(20, 100)
    buffer = np.full((20, 64), 7, np.float32)
    native.spmm(case.indptr, case.indices, case.matrix(20, 41), buffer[:, :41], 0, 20)
    assert (buffer[:, 41:] == 7).all()


def test_a_nan_reaches_its_neighbours_and_no_other_row() -> None:
    indptr, indices = np.array([0, 2, 3], np.int64), np.array([0, 1, 1], np.int32)
    x, out = np.zeros((2, 20), np.float32), np.zeros((2, 20), np.float32)
    x[0, 17] = np.nan
    native.spmm(indptr, indices, x, out, 0, 2)
    assert np.isnan(out[0, 17])
    assert np.isnan(out).sum() == 1


@few
@given(cases(), widths, flags)
def test_max_counts_the_edges_that_attain_it(case: Case, width: int, bf16: bool) -> None:
    x = case.bf16(case.num_cols, width) if bf16 else np.round(case.matrix(case.num_cols, width))
    outputs = [case.matrix(case.num_rows, width), case.matrix(case.num_rows, width)]
    agree("spmm_max", [case.indptr, case.indices, x], outputs, case.begin, case.end)


@few
@given(cases(), widths, flags, flags)
def test_gradient_of_max_goes_evenly_to_the_ties(case: Case, width: int, bf16: bool, accumulate: bool) -> None:
    x = case.bf16(case.num_cols, width) if bf16 else np.round(case.matrix(case.num_cols, width))
    out, ties = np.zeros((case.num_rows, width), np.float32), np.ones((case.num_rows, width), np.float32)
    reference.spmm_max(case.indptr, case.indices, x, out, ties, 0, case.num_rows)
    inputs = [*case.transposed(), x, out, case.matrix(case.num_rows, width) / ties]
    dx = case.matrix(case.num_cols, width)
    agree("spmm_max_grad", inputs, [dx], case.begin, case.end, accumulate=accumulate)


def test_a_nan_among_the_neighbours_is_their_maximum() -> None:
    indptr, indices = np.array([0, 3], np.int64), np.array([0, 1, 2], np.int32)
    for position in range(3):
        x, out, ties = np.zeros((3, 20), np.float32), np.zeros((1, 20), np.float32), np.zeros((1, 20), np.float32)
        x[position] = np.nan
        native.spmm_max(indptr, indices, x, out, ties, 0, 1)
        assert np.isnan(out).all()


def test_gradient_of_max_equals_finite_differences() -> None:
    case = large_case(30, 120)
    x = case.matrix(30, 5).astype(np.float64)
    weight = case.rng.standard_normal((30, 5))

    def loss(x: Any) -> float:
        out, ties = np.zeros((30, 5)), np.zeros((30, 5))
        reference.spmm_max(case.indptr, case.indices, x, out, ties, 0, 30)
        return float((weight * out).sum())

    x32 = x.astype(np.float32)
    out, ties, dx = (np.zeros((30, 5), np.float32) for _ in range(3))
    native.spmm_max(case.indptr, case.indices, x32, out, ties, 0, 30)
    native.spmm_max_grad(*case.transposed(), x32, out, (weight / ties).astype(np.float32), dx, 0, 30)
    close([dx], differences(loss, [x]), atol=1e-4)


@few
@given(cases(), widths)
def test_outer_adds_every_product_to_the_row_of_its_column(case: Case, width: int) -> None:
    values, dz, dw = case.vector(case.num_edges), case.matrix(case.num_rows, width), case.matrix(case.num_cols, width)
    agree("spmm_outer", [case.indptr, case.indices, values, dz], [dw], case.begin, case.end)


@few
@given(cases(), st.sampled_from([1, 3, 16, 64, 128, 256]))  # at other widths the overlap is read twice
def test_the_limit_reads_exactly_the_rows_of_the_edges(case: Case, width: int) -> None:
    arguments = (case.indptr, case.indices, case.matrix(case.num_cols, width, low=0.5, high=1), case.begin, case.end)
    assert native.gather_limit(*arguments) == pytest.approx(reference.gather_limit(*arguments), rel=1e-5)
