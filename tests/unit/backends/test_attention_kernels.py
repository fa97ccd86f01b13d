from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from kernel_cases import Case, agree, cases, close, differences, few, large_case

from dorylus.backends import native, reference
from dorylus.backends.native.dropout import Dropout

heads_and_columns = st.sampled_from(
    [
        (1, 1),
        (1, 3),
        (1, 41),
        (1, 130),
        (2, 1),
        (3, 5),
        (4, 4),
        (5, 7),
        (8, 8),
        (8, 16),
        (8, 41),
        (9, 2),
        (16, 1),
        (20, 3),
    ]
)
slopes = st.sampled_from([0.2, 0.0, 1.0])
drops = st.sampled_from([None, Dropout(0.6, 2**40 + 7, 3, 1), Dropout(0.1, 0, 0, 0)])


def blank(rows: int, width: int, heads: int) -> list[Any]:
    """lse, out_pos, a_pos to be written."""
    return [np.full((rows, n), 9, np.float32) for n in (heads, width, heads)]


def forward(module: Any, case: Case, z: Any, s_src: Any, s_dst: Any, heads: int, **options: Any) -> list[Any]:
    """out, lse, out_pos, a_pos of a training pass over the case's rows."""
    kept = blank(case.num_rows, z.shape[1], heads)
    out = np.full((case.num_rows, z.shape[1]), 9, np.float32)
    named = dict(zip(("lse", "out_pos", "a_pos"), kept, strict=True))
    module.attention(
        case.indptr, case.indices, z, s_src, s_dst, out, case.begin, case.end, heads=heads, **named, **options
    )
    return [out, *kept]


@few
@given(cases(), heads_and_columns, slopes, drops, st.booleans())
def test_attention_is_the_softmax_weighted_sum(
    case: Case, shape: tuple[int, int], slope: float, drop: Dropout | None, bf16: bool
) -> None:
    heads, width = shape[0], shape[0] * shape[1]
    z = case.bf16(case.num_cols, width) if bf16 else case.matrix(case.num_cols, width)
    scores = case.matrix(case.num_cols, heads), case.matrix(case.num_rows, heads)
    options = {"slope": slope, "drop": drop, "ids": case.ids()}
    close(forward(native, case, z, *scores, heads, **options), forward(reference, case, z, *scores, heads, **options))


@few
@given(cases(), heads_and_columns, drops)
def test_evaluation_gives_the_output_of_training(case: Case, shape: tuple[int, int], drop: Dropout | None) -> None:
    heads, width = shape[0], shape[0] * shape[1]
    inputs = case.matrix(case.num_cols, width), case.matrix(case.num_cols, heads), case.matrix(case.num_rows, heads)
    options: dict[str, Any] = {"drop": drop, "ids": case.ids()}
    trained = forward(native, case, *inputs, heads, **options)[0]
    out = np.full_like(trained, 9)
    native.attention(case.indptr, case.indices, *inputs, out, case.begin, case.end, heads=heads, **options)
    np.testing.assert_array_equal(out, trained)


@pytest.mark.parametrize(("heads", "columns"), [(8, 8), (1, 41), (3, 7), (2, 100)])
@pytest.mark.parametrize("drop", [None, Dropout(0.6, 1, 2, 3)])
def test_attention_agrees_where_rows_have_many_edges(heads: int, columns: int, drop: Dropout | None) -> None:
    case = large_case(120, 6_000)
    z = case.matrix(120, heads * columns)
    scores = case.matrix(120, heads, low=-9, high=9), case.matrix(120, heads, low=-9, high=9)
    options = {"drop": drop, "ids": case.ids()}
    mine, theirs = (forward(module, case, z, *scores, heads, **options) for module in (native, reference))
    close(mine, theirs)


def test_scores_of_any_size_neither_overflow_nor_vanish() -> None:
    case = large_case(50, 400)
    z = case.matrix(50, 16)
    scores = case.matrix(50, 2, low=-400, high=400), case.matrix(50, 2, low=-400, high=400)
    close(forward(native, case, z, *scores, 2), forward(reference, case, z, *scores, 2), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("heads", [1, 8])
def test_a_nan_score_comes_out_as_nan(heads: int) -> None:
    indptr, indices = np.array([0, 3], np.int64), np.array([0, 1, 2], np.int32)
    for position in range(3):
        s_src, out = np.zeros((3, heads), np.float32), np.zeros((1, heads * 2), np.float32)
        s_src[position] = np.nan
        z = np.ones((3, heads * 2), np.float32)
        native.attention(indptr, indices, z, s_src, s_src[:1] * 0, out, 0, 1, heads=heads)
        assert np.isnan(out).all()


@few
@given(cases(), heads_and_columns, st.booleans())
def test_gradient_of_destination_scores_follows_from_the_sums(case: Case, shape: tuple[int, int], bf16: bool) -> None:
    heads, width = shape[0], shape[0] * shape[1]
    n = case.num_rows
    dout = case.bf16(n, width) if bf16 else case.matrix(n, width)
    inputs = [case.matrix(n, width), case.matrix(n, width), case.matrix(n, heads), dout]
    outputs = [case.matrix(n, heads), case.matrix(n, heads)]
    agree("attention_grad_dst", inputs, outputs, case.begin, case.end, heads=heads, slope=0.3)


@few
@given(cases(), heads_and_columns, slopes, drops, st.booleans(), st.booleans(), st.booleans())
def test_gradient_of_sources_sums_over_their_out_edges(
    case: Case, shape: tuple[int, int], slope: float, drop: Dropout | None, accumulate: bool, bf16: bool, z_bf16: bool
) -> None:
    heads, width = shape[0], shape[0] * shape[1]
    n, m = case.num_rows, case.num_cols
    z = case.bf16(m, width) if z_bf16 else case.matrix(m, width)
    dout = case.bf16(n, width) if bf16 else case.matrix(n, width)
    s_src, s_dst, lse, delta = (
        case.matrix(m, heads),
        case.matrix(n, heads),
        case.matrix(n, heads),
        case.matrix(n, heads),
    )
    inputs = [*case.transposed(), z, s_src, s_dst, lse + 4, delta, dout]
    outputs = [case.matrix(m, width), case.matrix(m, heads)]
    options = {"slope": slope, "drop": drop, "ids": case.ids(), "accumulate": accumulate}
    agree("attention_grad_src", inputs, outputs, case.begin, case.end, heads=heads, **options)


@pytest.mark.parametrize(("heads", "columns"), [(1, 5), (2, 3), (8, 2)])
@pytest.mark.parametrize("drop", [None, Dropout(0.4, 5, 6, 7)])
def test_gradients_equal_finite_differences_of_the_reference(heads: int, columns: int, drop: Dropout | None) -> None:
    case = large_case(9, 30, seed=heads)
    z, s_src, s_dst = case.matrix(9, heads * columns), case.matrix(9, heads), case.matrix(9, heads)
    weight = case.matrix(9, heads * columns)
    ids = case.ids()

    def loss(z: Any, s_src: Any, s_dst: Any) -> float:
        out = np.zeros((9, heads * columns))
        graph = case.indptr, case.indices
        reference.attention(*graph, z, s_src, s_dst, out, 0, 9, heads=heads, drop=drop, ids=ids)
        return float((weight * out).sum())

    mine = backward(case, z, s_src, s_dst, weight, heads, drop, ids)
    close(
        mine, differences(loss, [z.astype(np.float64), s_src.astype(np.float64), s_dst.astype(np.float64)]), atol=1e-4
    )


def backward(
    case: Case, z: Any, s_src: Any, s_dst: Any, dout: Any, heads: int, drop: Dropout | None, ids: Any
) -> list[Any]:
    """dz, ds_src, ds_dst by the kernels."""
    out, lse, out_pos, a_pos = forward(native, case, z, s_src, s_dst, heads, drop=drop, ids=ids)
    delta, ds_dst, ds_src, dz = (np.zeros_like(like) for like in (s_dst, s_dst, s_src, z))
    rows = (0, case.num_rows)
    native.attention_grad_dst(out, out_pos, a_pos, dout, delta, ds_dst, *rows, heads=heads)
    native.attention_grad_src(
        *case.transposed(), z, s_src, s_dst, lse, delta, dout, dz, ds_src, *rows, heads=heads, drop=drop, ids=ids
    )
    return [dz, ds_src, ds_dst]


def test_training_outputs_are_given_together_or_not_at_all() -> None:
    case = large_case(5, 10)
    z, s = case.matrix(5, 4), case.matrix(5, 2)
    with pytest.raises(ValueError, match="all of lse, out_pos and a_pos"):
        native.attention(case.indptr, case.indices, z, s, s, z.copy(), 0, 5, heads=2, lse=s.copy())


def test_heads_that_do_not_divide_the_columns_are_refused() -> None:
    case = large_case(5, 10)
    z, s = case.matrix(5, 4), case.matrix(5, 3)
    with pytest.raises(ValueError, match="z has 4 columns, which heads=3 cannot share evenly"):
        native.attention(case.indptr, case.indices, z, s, s, z.copy(), 0, 5, heads=3)


def test_dropout_without_ids_is_refused() -> None:
    case = large_case(5, 10)
    z, s = case.matrix(5, 4), case.matrix(5, 2)
    with pytest.raises(TypeError, match="ids"):
        native.attention(case.indptr, case.indices, z, s, s, z.copy(), 0, 5, heads=2, drop=Dropout(0.5, 0, 0, 0))


@pytest.mark.parametrize("heads", [1, 8])
def test_the_exponential_is_exact_to_float_rounding(heads: int) -> None:
    n = 40_000
    scores = np.linspace(-87, 88, n * heads, dtype=np.float32).reshape(n, heads)
    zeros, ones = np.zeros((1, heads), np.float32), np.ones((1, heads), np.float32)
    indptr, indices = np.arange(n + 1, dtype=np.int64), np.zeros(n, np.int32)  # one edge a source: dz is its weight
    dz, ds_src = np.zeros_like(scores), np.zeros_like(scores)
    native.attention_grad_src(
        indptr, indices, scores, scores, zeros, zeros, zeros, ones, dz, ds_src, 0, n, heads=heads, slope=1.0
    )
    np.testing.assert_allclose(dz, np.exp(scores.astype(np.float64)), rtol=2e-7)
