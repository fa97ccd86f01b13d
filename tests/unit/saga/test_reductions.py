"""The declarations of the reductions; no other module refers to one by name."""

import re
from pathlib import Path

import pytest

import dorylus
from dorylus.errors import ConfigError
from dorylus.saga import GatherSpec, Reduction, RowMatrix, Savings, lower
from dorylus.saga.reductions import REDUCTIONS, reduction_of
from dorylus.servers.graph import gathers

SOURCE = Path(dorylus.__file__).parent
SPECS = [
    pytest.param(spec, base, id=f"{reduction} of {what}")
    for reduction in REDUCTIONS.values()
    for what, spec, base in (
        ("rows", reduction.rows, gathers.Gatherer),
        ("messages", reduction.messages, gathers.MessageGatherer),
    )
    if spec is not None
]


@pytest.mark.parametrize(("spec", "base"), SPECS)
def test_every_gatherer_that_is_named_is_a_class_of_the_graph_server(spec, base):
    assert issubclass(getattr(gathers, spec.gatherer), base)


@pytest.mark.parametrize(("spec", "base"), SPECS)
def test_matrices_have_names_of_their_own_and_messages_publish_nothing(spec, base):
    for matrices in (spec.kept, spec.published):
        assert len({matrix.name for matrix in matrices}) == len(matrices)
    assert bool(spec.published) is (base is gathers.Gatherer)
    assert not any(matrix.narrow for matrix in spec.kept)  # kept matrices are float32


def test_a_matrix_has_the_outputs_columns_one_per_head_or_a_number_of_its_own():
    layer = dorylus.GAT(6, 12, heads=3)
    assert [RowMatrix(name="m", columns=each).num_columns(layer, 12) for each in ("output", "heads", 5)] == [12, 3, 5]


def test_a_layer_names_its_reduction_or_brings_one():
    layer = dorylus.GIN(3, 4)
    assert reduction_of(layer) is REDUCTIONS["sum"]
    layer.reduce = Reduction(name="own", rows=GatherSpec(gatherer="SumGather", edge_norm="mean"))
    assert reduction_of(layer) is layer.reduce
    assert layer.edge_norm == "mean"
    dorylus.Program([layer])


def test_attention_is_for_gat_alone():
    class Attentive(dorylus.Layer):
        reduce = "attention"

    class DerivedGAT(dorylus.GAT):
        pass

    how = {"sparse_features": False, "training": True, "savings": Savings()}
    with pytest.raises(ConfigError, match="layer 0 reduces by attention, which only GAT does: use 'softmax'"):
        lower(dorylus.Program([Attentive(1, 2)]), **how)
    lower(dorylus.Program([DerivedGAT(1, 2)]), **how)


def test_no_other_module_checks_which_reduction_a_layer_has():
    """Only the oracle does, which shares nothing with the engine."""
    comparison = re.compile(r"\breduce (==|!=|in|not in) |isinstance\([\w.]+, GAT\)")
    found = {path.name for path in SOURCE.rglob("*.py") if comparison.search(path.read_text())}
    assert found <= {"reference.py", "pyg.py"}
