import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from linear_functions import PROGRAMS, a_call

from dorylus.errors import ConfigError
from dorylus.pools.functions.tasks import HEAD_BYTES, Inputs, even, out_row_bytes, row_bytes, rows_within, within
from dorylus.saga.dense import Mode
from dorylus.saga.sparse import SparseRows


def sparse_call(entries):
    indptr = np.concatenate([[0], np.cumsum(entries)])
    indices = np.concatenate([np.arange(n) % 5 for n in entries] or [[]]).astype(np.int32)
    rows = SparseRows(indptr, indices, np.ones(len(indices), np.float32), 5)
    return a_call(num_rows=len(entries), inputs=(rows,))


def inputs_of(call):
    return Inputs(call, PROGRAMS[call.mode])


@pytest.mark.parametrize(
    ("num_rows", "part_rows", "parts"),
    [(5, 2, [(0, 2), (2, 4), (4, 5)]), (4, 2, [(0, 2), (2, 4)]), (1, 9, [(0, 1)]), (0, 9, [])],
)
def test_even_parts_cover_all_rows(num_rows, part_rows, parts):
    assert even(num_rows, part_rows) == parts


def test_a_part_has_at_least_one_row():
    assert rows_within(1000, 10) == 1
    assert rows_within(10, 1000) == 100


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(400, 2000), st.integers(1, 50))
def test_parts_of_sparse_rows_stay_within_the_limit_however_uneven_the_rows_are(entries, room, out_bytes):
    inputs = inputs_of(sparse_call(entries))
    parts = within(inputs, "float32", HEAD_BYTES + 100 + room, 100, out_bytes)
    assert [begin for begin, _ in parts] == [0, *(end for _, end in parts[:-1])]
    assert parts[-1][1] == len(entries)
    for begin, end in parts:
        sent = sum(array.nbytes for array in inputs.part(begin, end).values())
        assert sent - 8 <= room  # a part has one offset more than rows: the header's room covers it
        assert (end - begin) * out_bytes <= room


def test_parts_are_as_big_as_the_limit_allows():
    inputs = inputs_of(a_call(num_rows=100))
    assert len(within(inputs, "float32", HEAD_BYTES + 50 * 20, 0, 1)) == 2
    assert len(within(inputs, "float32", HEAD_BYTES + 50 * 20, 0, 40)) == 4
    assert len(within(inputs, "int8", HEAD_BYTES + 50 * 9, 0, 1)) == 2


@pytest.mark.parametrize(("whole", "out"), [(0, 2000), (990, 1)])
def test_what_does_not_fit_at_all_is_refused_with_the_cure(whole, out):
    with pytest.raises(ConfigError, match="use data_path='direct'"):
        within(inputs_of(a_call()), "float32", HEAD_BYTES + 1000, whole, out)


@pytest.mark.parametrize(("precision", "size"), [("float32", 20 + 12), ("bf16", 10 + 6), ("int8", 9 + 7)])
def test_a_row_weighs_what_travels(precision, size):
    assert row_bytes(inputs_of(a_call(Mode.GRADIENT)), precision) == size
    assert out_row_bytes({"input_grad.0": (5,), "output.1": (3,), "loss": ()}, precision) == size


def test_inputs_are_cut_without_copying():
    call = a_call()
    part = inputs_of(call).part(2, 5)
    assert np.shares_memory(part["rows.0"], call.inputs[0].numpy())
    assert len(part["rows.0"]) == 3


def test_arrays_of_different_numbers_of_rows_are_refused():
    call = a_call(Mode.GRADIENT)
    object.__setattr__(call, "cotangents", (torch.zeros(3, 3),))
    with pytest.raises(ValueError, match=r"cotangent\.0 has 3 rows and rows\.0 has 10"):
        inputs_of(call)


def test_labels_and_total_are_kept_apart_from_rows():
    inputs = inputs_of(a_call(Mode.LOSS))
    assert set(inputs.by_row) == {"rows.0", "labels"}
    assert set(inputs.whole) == {"total"}
    assert inputs.whole["total"].dtype == np.float32
    assert set(inputs.weights) == {"weight.weight", "weight.bias"}
