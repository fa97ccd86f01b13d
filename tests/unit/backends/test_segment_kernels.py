from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from kernel_cases import Case, agree, cases, close, differences, few, large_case, widths

from dorylus.backends import native, reference

heads_and_columns = st.sampled_from([(1, 1), (1, 41), (2, 3), (4, 4), (8, 8), (5, 20), (16, 2)])


def num_messages(case: Case) -> int:
    return case.range_edges.stop - case.range_edges.start


@few
@given(cases(), widths, st.booleans(), st.booleans())
def test_sum_adds_the_messages_of_a_row(case: Case, width: int, scaled: bool, accumulate: bool) -> None:
    inputs = [case.indptr, case.matrix(num_messages(case), width)]
    scale = case.vector(case.num_rows) if scaled else None
    out = case.matrix(case.num_rows, width)
    agree("segment_sum", inputs, [out], case.begin, case.end, row_scale=scale, accumulate=accumulate)


@few
@given(cases(), widths, st.booleans())
def test_spread_gives_every_message_its_row(case: Case, width: int, scaled: bool) -> None:
    scale = case.vector(case.num_rows) if scaled else None
    inputs = [case.indptr, case.matrix(case.num_rows, width)]
    agree("segment_spread", inputs, [case.matrix(num_messages(case), width)], case.begin, case.end, row_scale=scale)


@few
@given(cases(), widths)
def test_max_counts_the_messages_that_attain_it(case: Case, width: int) -> None:
    messages = np.round(case.matrix(num_messages(case), width))
    outputs = [case.matrix(case.num_rows, width), case.matrix(case.num_rows, width)]
    agree("segment_max", [case.indptr, messages], outputs, case.begin, case.end)


@few
@given(cases(), widths)
def test_gradient_of_max_goes_to_the_messages_that_attain_it(case: Case, width: int) -> None:
    messages = np.round(case.matrix(num_messages(case), width))
    out, ties = np.zeros((case.num_rows, width), np.float32), np.ones((case.num_rows, width), np.float32)
    reference.segment_max(case.indptr, messages, out, ties, case.begin, case.end)
    inputs = [case.indptr, messages, out, case.matrix(case.num_rows, width)]
    agree("segment_max_grad", inputs, [np.full_like(messages, 9)], case.begin, case.end)


@few
@given(cases(), heads_and_columns)
def test_softmax_weighs_messages_by_their_scores(case: Case, shape: tuple[int, int]) -> None:
    heads, width = shape[0], shape[0] * shape[1]
    inputs = [case.indptr, case.matrix(num_messages(case), heads), case.matrix(num_messages(case), width)]
    outputs = [case.matrix(case.num_rows, width), case.matrix(case.num_rows, heads)]
    agree("segment_softmax", inputs, outputs, case.begin, case.end, heads=heads)


@few
@given(cases(), heads_and_columns)
def test_gradient_of_softmax_agrees(case: Case, shape: tuple[int, int]) -> None:
    heads, width = shape[0], shape[0] * shape[1]
    n, count = case.num_rows, num_messages(case)
    scores, messages = case.matrix(count, heads), case.matrix(count, width)
    out, lse, dout = case.matrix(n, width), case.matrix(n, heads) + 4, case.matrix(n, width)
    outputs = [case.matrix(count, heads), case.matrix(count, width)]
    inputs = [case.indptr, scores, messages, out, lse, dout]
    agree("segment_softmax_grad", inputs, outputs, case.begin, case.end, heads=heads)


@pytest.mark.parametrize(("heads", "columns"), [(1, 4), (3, 2), (8, 1)])
def test_gradients_of_softmax_equal_finite_differences(heads: int, columns: int) -> None:
    case = large_case(6, 20)
    width = heads * columns
    scores, messages, weight = case.matrix(20, heads), case.matrix(20, width), case.matrix(6, width)

    def loss(scores: Any, messages: Any) -> float:
        out = np.zeros((6, width))
        reference.segment_softmax(case.indptr, scores, messages, out, np.zeros((6, heads)), 0, 6, heads=heads)
        return float((weight * out).sum())

    out, lse = np.zeros((6, width), np.float32), np.zeros((6, heads), np.float32)
    dscores, dmessages = np.zeros_like(scores), np.zeros_like(messages)
    native.segment_softmax(case.indptr, scores, messages, out, lse, 0, 6, heads=heads)
    native.segment_softmax_grad(case.indptr, scores, messages, out, lse, weight, dscores, dmessages, 0, 6, heads=heads)
    expected = differences(loss, [scores.astype(np.float64), messages.astype(np.float64)])
    close([dscores, dmessages], expected, atol=1e-4)


def test_too_few_messages_are_refused() -> None:
    case = large_case(6, 20)
    with pytest.raises(ValueError, match="messages must have at least 20 rows, not 19"):
        native.segment_sum(case.indptr, case.matrix(19, 3), case.matrix(6, 3), 0, 6)
