import hashlib

import pytest

from dorylus.functions.program import (
    ArrayRole,
    ExportedProgram,
    ProgramError,
    called,
    is_cut_by_row,
    is_summed,
    role,
    which,
)

NAMES = {
    "rows.0": ArrayRole.ROWS,
    "rows.12": ArrayRole.ROWS,
    "cotangent.1": ArrayRole.COTANGENT,
    "labels": ArrayRole.LABELS,
    "total": ArrayRole.TOTAL,
    "weight.layers.0.lin.weight": ArrayRole.WEIGHT,
    "output.0": ArrayRole.OUTPUT,
    "saved.3": ArrayRole.SAVED,
    "input_grad.2": ArrayRole.INPUT_GRAD,
    "weight_grad.layers.0.bias": ArrayRole.WEIGHT_GRAD,
    "loss": ArrayRole.LOSS,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_gives_its_role(name):
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
    program = ExportedProgram.of(b"content", ("rows.0",), ("output.0",))
    assert program.hash == hashlib.sha256(b"content").hexdigest()
