import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dorylus.backends import native
from dorylus.backends.host import NativeBackend
from dorylus.pipeline import Kind, Task
from dorylus.servers.graph.ghosts import GhostMessage, pack, unpack

BACKEND = NativeBackend()
MATRIX = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
ROWS = np.array([3, 0, 3], np.int32)


def bf16(matrix):
    out = np.empty(matrix.shape, np.uint16)
    native.to_bf16(matrix, out, 0, len(matrix))
    return out


def test_rows_are_sent_in_float32_by_default():
    found = pack(BACKEND, MATRIX, ROWS, narrow=False)
    np.testing.assert_array_equal(found, MATRIX[ROWS])
    assert found.dtype == np.float32


def test_narrow_rows_travel_in_half_the_bytes():
    found = pack(BACKEND, MATRIX, ROWS, narrow=True)
    np.testing.assert_array_equal(found, bf16(MATRIX[ROWS]))
    assert found.nbytes * 2 == MATRIX[ROWS].nbytes


@pytest.mark.parametrize("narrow", [False, True])
def test_a_matrix_that_is_narrow_already_loses_nothing_more(narrow):
    np.testing.assert_array_equal(pack(BACKEND, bf16(MATRIX), ROWS, narrow=narrow), bf16(MATRIX)[ROWS])


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
@pytest.mark.parametrize("narrow", [False, True])
def test_posted_rows_do_not_change_with_the_matrix(dtype, narrow):
    matrix = MATRIX.copy() if dtype == np.float32 else bf16(MATRIX)
    found = pack(BACKEND, matrix, np.arange(4, dtype=np.int32), narrow=narrow)
    before = found.copy()
    matrix.fill(0)
    np.testing.assert_array_equal(found, before)


@pytest.mark.parametrize("narrow", [False, True])
def test_a_message_without_rows_has_size_zero(narrow):
    found = pack(BACKEND, MATRIX, np.zeros(0, np.int32), narrow=narrow)
    assert found.shape == (0, 3)
    assert found.nbytes == 0


matrices = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=2, max_dims=2, max_side=9),
    elements=st.floats(-(2.0**90), 2.0**90, width=32),
)


@given(matrices, st.booleans(), st.booleans())
def test_rows_survive_a_round_trip_up_to_the_rounding_of_the_narrowest_type(matrix, travels, held):
    """Sent or stored at the receiver in bfloat16, they are rounded to it, and only once."""
    everyone = np.arange(len(matrix), dtype=np.int32)
    target = np.empty(matrix.shape, np.uint16 if held else np.float32)
    unpack(BACKEND, pack(BACKEND, matrix, everyone, narrow=travels), target)
    if not travels and not held:
        np.testing.assert_array_equal(target, matrix)
        return
    rounded = bf16(matrix)
    wide = np.empty(matrix.shape, np.float32)
    native.from_bf16(rounded, wide, 0, len(rounded))
    np.testing.assert_array_equal(target, rounded if held else wide)


def test_rows_are_written_into_a_part_of_a_matrix_in_place():
    target = np.zeros((6, 3), np.float32)
    unpack(BACKEND, pack(BACKEND, MATRIX, ROWS, narrow=False), target[2:5])
    np.testing.assert_array_equal(target[2:5], MATRIX[ROWS])
    assert not target[:2].any()
    assert not target[5:].any()


def test_the_size_of_a_message_is_the_sum_of_its_parts():
    task = Task(0, 0, 0, 0, Kind.SCATTER)
    assert GhostMessage(task, (np.zeros((2, 3), np.float32), np.zeros((2, 3), np.uint16))).num_bytes == 24 + 12
    assert GhostMessage(task, ()).num_bytes == 0
