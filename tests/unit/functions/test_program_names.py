import hashlib

import pytest

from dorylus.functions.program import Program, ProgramError, Role, called, is_cut_by_row, is_summed, role, which

NAMES = {
    "rows.0": Role.ROWS,
    "rows.12": Role.ROWS,
    "cotangent.1": Role.COTANGENT,
    "labels": Role.LABELS,
    "total": Role.TOTAL,
    "weight.layers.0.lin.weight": Role.WEIGHT,
    "output.0": Role.OUTPUT,
    "saved.3": Role.SAVED,
    "input_grad.2": Role.INPUT_GRAD,
    "weight_grad.layers.0.bias": Role.WEIGHT_GRAD,
    "loss": Role.LOSS,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_says_its_role(name):
    assert role(name) is NAMES[name]


@pytest.mark.parametrize("name", ["", "row.0", "rows", "rows.", "loss.0", "total.", "weights.w", "Rows.0", "labels.0"])
def test_other_names_are_refused(name):
    with pytest.raises(ProgramError, match="no array is called"):
        role(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_made_of_its_role_and_what_follows(name):
    assert called(role(name), which(name) or None) == name


def test_a_weights_name_keeps_its_dots():
    assert which("weight.layers.0.lin.weight") == "layers.0.lin.weight"


def test_some_arrays_are_cut_by_row_some_are_summed_and_some_are_neither():
    assert {name for name in NAMES if is_cut_by_row(name)} == {
        "rows.0", "rows.12", "cotangent.1", "labels", "output.0", "saved.3", "input_grad.2",
    }  # fmt: skip
    assert {name for name in NAMES if is_summed(name)} == {"weight_grad.layers.0.bias", "loss"}


def test_a_program_is_known_by_the_hash_of_its_content():
    program = Program.of(b"content", ("rows.0",), ("output.0",))
    assert program.hash == hashlib.sha256(b"content").hexdigest()
