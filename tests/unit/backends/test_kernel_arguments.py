"""Wrong calls raise; they never crash and never write."""

from typing import Any

import numpy as np
import pytest

from dorylus.backends import native, reference

INDPTR = np.array([0, 2, 3], np.int64)
INDICES = np.array([0, 1, 1], np.int32)


def call(**changes: Any) -> None:
    """spmm on two vertices, with some arguments replaced."""
    given: dict[str, Any] = {
        "indptr": INDPTR,
        "indices": INDICES,
        "x": np.ones((2, 5), np.float32),
        "out": np.zeros((2, 5), np.float32),
        "begin": 0,
        "end": 2,
    }
    native.spmm(**(given | changes))


@pytest.mark.parametrize(
    "wrong",
    [
        {"indptr": INDPTR.astype(np.int32)},
        {"indices": INDICES.astype(np.int64)},
        {"x": np.ones((2, 5), np.float64)},
        {"x": [[1.0]]},
        {"out": np.zeros((2, 5), np.float64)},
        {"out": None},
        {"values": np.ones(3, np.float64)},
        {"begin": 0.5},
    ],
)
def test_a_wrong_type_is_a_type_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        call(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"indptr": np.zeros(0, np.int64)}, "indptr must have one more element"),
        ({"indptr": np.array([0, 2, 9], np.int64)}, "indptr reaches edge 9, but indices has 3"),
        ({"indptr": np.array([-1, 2, 3], np.int64)}, "indptr must start at 0 and never fall"),
        ({"x": np.ones(5, np.float32)}, r"x must be a matrix, not of shape \(5\)"),
        ({"x": np.ones((2, 10), np.float32)[:, ::2]}, "x must be row-major"),
        ({"x": np.ones((5, 2), np.float32).T}, "x must be row-major"),
        ({"out": np.zeros((1, 5), np.float32)}, "out must have at least 2 rows, not 1"),
        ({"out": np.zeros((2, 4), np.float32)}, "out must have 5 columns, not 4"),
        ({"values": np.ones(2, np.float32)}, "values must have 3 elements, not 2"),
        ({"values": np.ones(6, np.float32)[::2]}, "values must be contiguous"),
        ({"row_scale": np.ones(3, np.float32)}, "row_scale must have 2 elements"),
        ({"col_scale": np.ones(3, np.float32)}, "col_scale must have 2 elements"),
        ({"begin": 2, "end": 1}, "rows 2:1 are not a range of 2 rows"),
        ({"begin": -1}, "rows -1:2 are not a range"),
        ({"end": 3}, "rows 0:3 are not a range"),
    ],
)
def test_a_wrong_shape_is_a_value_error_that_names_the_argument(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(**wrong)


def test_a_read_only_output_is_refused_and_a_read_only_input_is_not() -> None:
    locked = np.zeros((2, 5), np.float32)
    locked.flags.writeable = False
    call(x=locked)
    with pytest.raises(ValueError, match="out must be a writable array"):
        call(out=locked)


def test_no_rows_and_no_columns_are_fine() -> None:
    call(begin=1, end=1)
    call(x=np.ones((2, 0), np.float32), out=np.zeros((2, 0), np.float32))
    indptr, indices, *_ = native.csr_build(np.zeros(0, np.int32), np.zeros(0, np.int32), 0, 0)
    assert (indptr.tolist(), indices.tolist()) == ([0], [])


def test_an_unknown_instruction_set_lists_the_known_ones(isa: str) -> None:
    with pytest.raises(ValueError, match="unknown instruction set 'avx1024': the known ones are "):
        native.use_isa("avx1024")
    assert native.isa() == isa


def test_the_reference_states_every_kernel() -> None:
    choosing = {"available_isas", "isa", "use_isa"}
    of_files = {
        "crc32",
        "crc32_blocks",
        "watch_mapping",
    }  # zlib states the first two, the kernel of the system the last
    assert set(native.__all__) - choosing - of_files <= set(reference.__all__)
