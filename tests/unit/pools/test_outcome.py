import numpy as np
import pytest
import torch
from linear_functions import IN, OUT, a_call

from dorylus.functions.program import ProgramError
from dorylus.pools.functions.tasks import Outcome, columns_of, output_shapes
from dorylus.saga.dense import Mode
from dorylus.saga.sparse import SparseRows

SHAPES = {"input_grad.0": (2,), "weight_grad.w": (3,), "loss": ()}
PARTS = [(0, 2), (2, 3)]


def rows(*values):
    return {"input_grad.0": np.array([[value, value] for value in values], np.float32)}


def sums(value):
    return {"weight_grad.w": np.full(3, value, np.float32), "loss": np.float32(value).reshape(())}


def test_rows_are_joined_and_sums_added_in_part_order_whichever_part_arrives_first():
    outcome = Outcome(SHAPES, PARTS, num_sums=2)
    outcome.take(1, {**rows(3), **sums(1e-8)})
    outcome.take(0, {**rows(1, 2), **sums(1.0)})
    assert outcome.complete
    made = outcome.arrays()
    assert made["input_grad.0"][:, 0].tolist() == [1, 2, 3]
    assert made["loss"] == np.float32(1.0) + np.float32(1e-8)


def test_a_piece_is_taken_once_from_the_first_attempt_that_brings_it():
    outcome = Outcome(SHAPES, PARTS, num_sums=1)
    assert outcome.take_rows(0, rows(1, 2))
    assert not outcome.take_rows(0, rows(8, 9))
    assert outcome.take_sums(0, sums(1))
    assert not outcome.take_sums(0, sums(9))
    assert not outcome.complete
    assert outcome.take_rows(1, rows(3))
    assert outcome.complete
    assert outcome.arrays()["input_grad.0"][:, 0].tolist() == [1, 2, 3]
    assert outcome.arrays()["loss"] == 1


def test_it_is_known_which_parts_are_missing():
    outcome = Outcome(SHAPES, PARTS, num_sums=2)
    assert outcome.missing() == [0, 1]
    outcome.take(0, {**rows(1, 2), **sums(1)})
    assert outcome.missing() == [1]


def test_what_is_kept_is_a_copy():
    outcome, brought = Outcome(SHAPES, PARTS, num_sums=1), sums(1)
    outcome.take_sums(0, brought)
    brought["weight_grad.w"][:] = 9
    outcome.take_rows(0, rows(1, 2))
    outcome.take_rows(1, rows(3))
    assert outcome.arrays()["weight_grad.w"].tolist() == [1, 1, 1]


def test_a_task_without_sums_waits_for_none():
    outcome = Outcome({"output.0": (1,)}, [(0, 1)], num_sums=1)
    outcome.take_rows(0, {"output.0": np.zeros((1, 1), np.float32)})
    assert outcome.complete


@pytest.mark.parametrize(
    "brought",
    [
        {},
        {"input_grad.1": np.zeros((2, 2), np.float32)},
        {"input_grad.0": np.zeros((3, 2), np.float32)},
        {"input_grad.0": np.zeros((2, 3), np.float32)},
        {"input_grad.0": np.zeros((2, 2), np.float64)},
        {**rows(1, 2), "loss": np.float32(0).reshape(())},
    ],
)
def test_rows_that_are_not_what_the_task_gives_are_refused(brought):
    outcome = Outcome(SHAPES, PARTS, num_sums=1)
    with pytest.raises(ProgramError, match="arrived"):
        outcome.take_rows(0, brought)
    assert outcome.take_rows(0, rows(1, 2))


@pytest.mark.parametrize("part", [-1, 2])
def test_an_unknown_part_is_refused(part):
    with pytest.raises(ProgramError, match=f"part {part}"):
        Outcome(SHAPES, PARTS, num_sums=1).take_rows(part, rows(1, 2))


def test_sums_of_another_shape_are_refused():
    with pytest.raises(ProgramError, match=r"weight_grad\.w arrived as float32\[2\]"):
        Outcome(SHAPES, PARTS, 1).take_sums(0, {**sums(1), "weight_grad.w": np.zeros(2, np.float32)})


def test_the_shapes_of_outputs_come_from_the_call():
    assert output_shapes(a_call(), ["output.0"]) == {"output.0": (OUT,)}
    names = ["input_grad.0", "weight_grad.weight", "weight_grad.bias", "loss"]
    assert output_shapes(a_call(Mode.LOSS), names) == {
        "input_grad.0": (IN,), "weight_grad.weight": (OUT, IN), "weight_grad.bias": (OUT,), "loss": (),
    }  # fmt: skip


def test_a_call_without_output_widths_is_tried_on_one_row():
    assert columns_of(a_call(Mode.LOSS)) == (OUT,)


def test_one_sparse_row_gives_the_widths_too():
    seen = []

    def body(weights, inputs):
        seen.append(inputs[0].to_dense().tolist())
        return (torch.zeros(1, 4),)

    rows = SparseRows(np.array([1, 2, 3]), np.array([0, 1, 0], np.int32), np.array([7, 8, 9], np.float32), 2)
    call = a_call(Mode.LOSS, inputs=(rows,))
    object.__setattr__(call, "body", body)
    assert columns_of(call) == (4,)
    assert seen == [[[0, 8]]]
