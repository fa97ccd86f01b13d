import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from kernel_cases import Case, cases, close, few, widths

from dorylus.backends import native, reference


@few
@given(cases(), widths, st.booleans())
def test_gather_picks_rows(case: Case, width: int, bf16: bool) -> None:
    x = case.bf16(case.num_cols, width) if bf16 else case.matrix(case.num_cols, width)
    mine, theirs = np.zeros((case.num_edges, width), np.float32), np.zeros((case.num_edges, width), np.float32)
    native.gather_rows(x, case.indices, mine)
    reference.gather_rows(x, case.indices, theirs)
    np.testing.assert_array_equal(mine, theirs)


@few
@given(cases(), widths)
def test_scatter_adds_rows_in_order(case: Case, width: int) -> None:
    src, out = case.matrix(case.num_edges, width), case.matrix(case.num_cols, width)
    mine, theirs = out.copy(), out.copy()
    native.scatter_add_rows(src, case.indices, mine)
    reference.scatter_add_rows(src, case.indices, theirs)
    close([mine], [theirs])


@pytest.mark.parametrize("bad", [-1, 3])
def test_a_row_number_out_of_bounds_is_named(bad: int) -> None:
    index = np.array([0, bad], np.int32)
    x, rows = np.zeros((3, 4), np.float32), np.zeros((2, 4), np.float32)
    with pytest.raises(ValueError, match=rf"index\[1\] is {bad}, outside 3 rows"):
        native.gather_rows(x, index, rows)
    with pytest.raises(ValueError, match=rf"index\[1\] is {bad}, outside 3 rows"):
        native.scatter_add_rows(rows, index, x)


@few
@given(st.lists(st.floats(width=32), min_size=1, max_size=70))
def test_bf16_is_the_nearest_and_ties_go_to_even(numbers: list[float]) -> None:
    x = np.array([numbers], np.float32)
    mine, theirs = np.zeros(x.shape, np.uint16), np.zeros(x.shape, np.uint16)
    native.to_bf16(x, mine, 0, 1)
    reference.to_bf16(x, theirs, 0, 1)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(mine[number], theirs[number])
    back = np.zeros_like(x)
    native.from_bf16(mine, back, 0, 1)
    assert np.isnan(back[~number]).all()


@pytest.mark.parametrize(
    ("bits", "rounded"),
    [(0x3F808000, 0x3F80), (0x3F818000, 0x3F82), (0x3F808001, 0x3F81), (0x7F7FFFFF, 0x7F80), (0xFF800000, 0xFF80)],
)
def test_bf16_rounds_known_bits(bits: int, rounded: int) -> None:
    out = np.zeros((1, 1), np.uint16)
    native.to_bf16(np.array([[bits]], np.uint32).view(np.float32), out, 0, 1)
    assert out[0, 0] == rounded


@few
@given(cases(), widths)
def test_conversions_leave_rows_outside_the_range_alone(case: Case, width: int) -> None:
    x, narrow, wide = (
        case.matrix(case.num_rows, width),
        case.bf16(case.num_rows, width),
        case.matrix(case.num_rows, width),
    )
    for name, source, target in (("to_bf16", x, narrow), ("from_bf16", narrow, wide)):
        mine, theirs = target.copy(), target.copy()
        getattr(native, name)(source, mine, case.begin, case.end)
        getattr(reference, name)(source, theirs, case.begin, case.end)
        np.testing.assert_array_equal(mine, theirs)
