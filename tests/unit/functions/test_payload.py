import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dorylus.functions.payload import from_bf16, from_int8, narrow, to_bf16, to_int8, widen
from dorylus.functions.program import ProgramError

FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)
MATRICES = hnp.arrays(np.float32, st.tuples(st.integers(0, 5), st.integers(2, 6)), elements=FLOATS)


@given(MATRICES)
def test_bf16_rounds_to_the_nearest_value(x):
    back = from_bf16(to_bf16(x))
    assert (np.abs(back - x) <= np.abs(x) * 2.0**-8 + 1e-38).all()
    np.testing.assert_array_equal(from_bf16(to_bf16(back)), back)


def test_bf16_rounds_ties_to_even_and_keeps_what_is_not_finite():
    one = np.float32(1)
    ulp = np.float32(2.0**-7)
    x = np.array([[one + ulp / 2, one + 3 * ulp / 2, np.inf, -np.inf, np.nan]], np.float32)
    back = from_bf16(to_bf16(x))
    np.testing.assert_array_equal(back[0, :4], [one, one + 2 * ulp, np.inf, -np.inf])
    assert np.isnan(back[0, 4])


@given(MATRICES)
def test_int8_is_off_by_at_most_half_a_step_of_its_row(x):
    back = from_int8(*to_int8(x))
    step = np.abs(x).max(axis=1, initial=0) / 127
    assert (np.abs(back - x) <= step[:, None] * 0.51 + 1e-37).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_diverged_row_comes_back_as_nan(bad):
    x = np.array([[1, 2], [bad, 2]], np.float32)
    back = from_int8(*to_int8(x))
    assert np.isfinite(back[0]).all()
    assert np.isnan(back[1]).all()


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", np.uint16), ("int8", np.int8)])
def test_only_matrices_of_rows_are_narrowed(precision, dtype):
    matrix, column = np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)
    arrays = {
        "rows.0": matrix, "cotangent.1": matrix, "output.0": matrix, "input_grad.2": matrix,
        "rows.1": column, "weight.scale": matrix, "weight_grad.w": matrix, "labels": np.zeros(4, np.int64),
        "total": np.float32(1).reshape(()), "rows.2.values": np.ones(4, np.float32),
    }  # fmt: skip
    narrowed = narrow(arrays, precision)
    assert {name for name, array in narrowed.items() if array.dtype == dtype} == {
        "rows.0", "cotangent.1", "output.0", "input_grad.2",
    }  # fmt: skip
    wide = widen({name: array for name, array in narrowed.items() if not name.startswith("rows.2")})
    assert wide.keys() == arrays.keys() - {"rows.2.values"}
    for name, array in wide.items():
        np.testing.assert_array_equal(array, arrays[name])


def test_float32_travels_as_it_is():
    arrays = {"rows.0": np.ones((2, 2), np.float32)}
    assert narrow(arrays, "float32")["rows.0"] is arrays["rows.0"]
    assert widen(arrays)["rows.0"] is arrays["rows.0"]


def csr(indptr, indices, values):
    parts = np.array(indptr), np.array(indices, np.int32), np.array(values, np.float32)
    return dict(zip(("rows.0.indptr", "rows.0.indices", "rows.0.values"), parts, strict=True))


def test_sparse_rows_become_dense_and_entries_of_one_place_add_up():
    wide = widen(csr([0, 3, 3], [1, 1, 0], [1, 2, 4]), {"rows.0": 2})
    np.testing.assert_array_equal(wide["rows.0"], [[4, 3], [0, 0]])
    assert set(wide) == {"rows.0"}


@pytest.mark.parametrize(
    "broken",
    [
        csr([0, 2], [0, 2], [1, 1]),
        csr([0, 2], [0, -1], [1, 1]),
        csr([1, 2], [0, 1], [1, 1]),
        csr([0, 3], [0, 1], [1, 1]),
        csr([0, 2, 1, 2], [0, 1], [1, 1]),
        csr([], [], []),
        csr([0, 2**63 - 1, -(2**31), 2], [0, 1], [1, 1]),
        {"rows.0.indptr": np.array([0])},
    ],
)
def test_sparse_rows_that_do_not_fit_together_are_refused(broken):
    with pytest.raises(ProgramError, match=r"rows\.0"):
        widen(broken, {"rows.0": 2})


def test_whole_numbers_without_their_scales_are_refused():
    with pytest.raises(ProgramError, match=r"rows\.0\.scale is missing"):
        widen({"rows.0": np.zeros((2, 3), np.int8)})
    for lengthy in (np.zeros(50, np.int8), np.zeros((50, 1, 1), np.int8), np.zeros((), np.int8)):
        with pytest.raises(ProgramError, match="each row has one"):
            widen({"rows.0": lengthy, "rows.0.scale": np.zeros(lengthy.shape[:1], np.float32)})
    with pytest.raises(ProgramError, match="each row has one"):
        widen({"rows.0": np.zeros((2, 3), np.int8), "rows.0.scale": np.zeros(3, np.float32)})
