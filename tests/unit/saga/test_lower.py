import pytest
import torch
from torch import nn

import dorylus
from dorylus.errors import ConfigError
from dorylus.saga import GCN, Savings, lower
from dorylus.saga.stages import ApplyEdge, ApplyVertex, Gather, Loss, Scatter

NOTHING_SAVED = Savings(cache_first_gather=False, narrow_gather=False, prune_rows=False)


def lowered(recipe, widths=(40, 4), *, sparse=False, training=True, savings=None, **more):
    program = recipe if isinstance(recipe, dorylus.Program) else recipe.build(*widths)
    return lower(program, sparse_features=sparse, training=training, savings=savings or Savings(), **more)


def stages(plan):
    """The plan's stages in short: AV, SC, GA@columns (* when made once), AE, loss."""
    names = {ApplyVertex: "AV", Scatter: "SC", Loss: "loss", ApplyEdge: "AE"}
    return " ".join(names[type(stage)] if type(stage) in names else _gather(stage) for stage in plan.stages)


def _gather(stage):
    return f"GA@{stage.output.columns}{'*' if stage.output.source == 'static' else ''}"


def gathers(plan):
    return [stage for stage in plan.stages if isinstance(stage, Gather)]


@pytest.mark.parametrize(
    ("recipe", "widths", "expected"),
    [
        (dorylus.gcn(hidden=16, dropout=0), (40, 4), "GA@40* AV SC GA@4 loss"),
        (dorylus.gcn(hidden=16, dropout=0.5), (40, 4), "AV SC GA@16 AV AV SC GA@4 loss"),
        (dorylus.gcn(hidden=16, dropout=0.5), (20, 4), "SC GA@20 AV AV SC GA@4 loss"),
        (dorylus.gcn(hidden=16, dropout=0.5, input_dropout=0.0), (40, 4), "GA@40* AV AV SC GA@4 loss"),
        (dorylus.gcn(hidden=3, dropout=0), (40, 9), "GA@40* AV SC GA@3 loss"),
        (dorylus.sage(hidden=8, dropout=0), (40, 4), "GA@40* AV SC GA@4 loss"),
        (dorylus.sage(hidden=8, dropout=0, aggregator="max"), (40, 4), "GA@40* AV SC GA@8 loss"),
        (dorylus.gin(hidden=8, dropout=0), (40, 4), "GA@40* AV SC GA@4 loss"),
        (dorylus.gat(hidden=4, heads=2, dropout=0), (40, 5), "AV SC GA@8 AV SC GA@5 loss"),
        (dorylus.gat(hidden=4, heads=2, dropout=0.5), (40, 5), "AV SC GA@8 AV AV SC GA@5 loss"),
    ],
)
def test_layers_become_these_stages(recipe, widths, expected):
    assert stages(lowered(recipe, widths)) == expected


def test_an_evaluation_ends_in_logits_and_drops_nothing():
    plan = lowered(dorylus.gcn(hidden=16, dropout=0.5), training=False)
    assert stages(plan) == "AV SC GA@16 AV SC GA@4 AV"
    assert plan.layer_outputs[-1].name == "logits"
    assert all(slot.dropout == 0 for stage in plan.stages if hasattr(stage, "inputs") for slot in stage.inputs)


def test_dropout_stands_on_the_slots_it_is_applied_to():
    plan = lowered(dorylus.gcn(num_layers=3, dropout=0.25, input_dropout=0.5))
    slots = {slot.name: slot.dropout for stage in plan.stages if hasattr(stage, "inputs") for slot in stage.inputs}
    assert {name: p for name, p in slots.items() if p} == {"features": 0.5, "row1": 0.25, "row2": 0.25}


@pytest.mark.parametrize(
    ("savings", "expected"),
    [
        (Savings(), "GA@40* AV SC GA@4 loss"),
        (Savings(cache_first_gather=False), "AV SC GA@16 AV SC GA@4 loss"),
        (Savings(narrow_gather=False), "GA@40* AV SC GA@4 loss"),
        (NOTHING_SAVED, "AV SC GA@16 AV SC GA@4 loss"),
    ],
)
def test_savings_can_be_switched_off_one_by_one(savings, expected):
    assert stages(lowered(dorylus.gcn(hidden=16, dropout=0), savings=savings)) == expected


def test_without_narrow_gathers_a_layer_keeps_its_usual_order():
    wide = dorylus.gcn(hidden=2, dropout=0)
    off = Savings(narrow_gather=False, cache_first_gather=False)
    assert [g.output.columns for g in gathers(lowered(wide, (40, 9), savings=off))] == [2, 9]
    assert [g.output.columns for g in gathers(lowered(wide, (40, 9)))] == [40, 2]
    sage = dorylus.sage(hidden=8, dropout=0)
    assert [g.output.columns for g in gathers(lowered(sage, savings=off))] == [40, 8]


@pytest.mark.parametrize(("features", "first"), [(33, True), (32, False), (16, False), (5, False)])
def test_features_are_transformed_first_only_when_that_halves_their_width(features, first):
    plan = lowered(dorylus.gcn(hidden=16, dropout=0.5), (features, 4))
    assert plan.layers[0].transform_first is first


@pytest.mark.parametrize(("hidden", "classes", "first"), [(5, 4, True), (4, 4, False), (3, 4, False)])
def test_later_layers_gather_at_the_narrower_width(hidden, classes, first):
    plan = lowered(dorylus.gcn(hidden=hidden), (40, classes))
    assert plan.layers[1].transform_first is first
    assert gathers(plan)[1].output.columns == min(hidden, classes)


@pytest.mark.parametrize("name", ["gcn", "gat", "sage", "gin"])
def test_sparse_features_stay_sparse_in_the_first_product(name):
    plan = lowered(getattr(dorylus, name)(hidden=8, dropout=0), sparse=True)
    assert plan.sparse_features
    assert isinstance(plan.stages[0], ApplyVertex)
    assert plan.stages[0].inputs == (plan.features,)


@pytest.mark.parametrize("recipe", [dorylus.gcn(residual=True), dorylus.sage(aggregator="max")])
def test_features_that_are_read_otherwise_too_become_dense(recipe):
    assert not lowered(recipe, sparse=True).sparse_features


def test_the_features_need_no_gradient_and_learned_values_do():
    plan = lowered(dorylus.gcn(dropout=0.5), (20, 4))
    assert not plan.features.needs_grad
    assert [g.output.needs_grad for g in gathers(plan)] == [False, True]


def test_levels_count_the_layers_still_to_come():
    plan = lowered(dorylus.gcn(num_layers=3, dropout=0.5))
    assert [g.output.level for g in gathers(plan)] == [1, 2, 3]
    assert plan.features.level == 0
    assert plan.stages[-1].level == 3


def test_only_the_last_output_of_an_evaluation_is_a_result():
    for recipe in (dorylus.gcn(num_layers=3), dorylus.gat(num_layers=3), dorylus.sage(num_layers=3)):
        plan = lowered(recipe, training=False)
        assert plan.results == {plan.layer_outputs[-1]}
        assert not lowered(recipe, training=True).results


def test_lowering_leaves_the_program_as_it_was():
    program = dorylus.gcn().build(5, 3)
    before = [program.layer(k).transform_first for k in range(2)]
    plan = lowered(program)
    assert plan.layers[0].transform_first is False
    assert [program.layer(k).transform_first for k in range(2)] == before


class Gate(dorylus.Layer):
    """A layer with a dense ApplyEdge."""

    def __init__(self, in_columns, out_columns, **finish):
        super().__init__(in_columns, out_columns, **finish)
        self.gate = nn.Linear(2 * in_columns + 1, out_columns)

    def apply_edge(self, source, destination, weight):
        return self.gate(torch.cat([source, destination, weight], 1))


def test_a_users_edge_layer_has_an_apply_edge_before_its_gather():
    plan = lowered(dorylus.Program([Gate(6, 5), Gate(5, 4, dropout=0.5)]))
    assert stages(plan) == "AE GA@5 AV SC AE GA@4 loss"
    assert [g.output.needs_grad for g in gathers(plan)] == [True, True]


def test_the_first_gather_of_an_edge_layer_is_never_made_once():
    assert gathers(lowered(dorylus.Program([Gate(6, 5), GCN(5, 4)])))[0].output.source == "computed"


def test_bodies_name_their_weights_as_the_program_does():
    program = dorylus.gcn(num_layers=3, layer_norm=True, dropout=0.5).build(40, 4)
    named = {n for s in lowered(program).stages if isinstance(s, ApplyVertex | Loss) for n in s.body.weight_names}
    assert named == {name for name, _ in program.named_parameters()}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"reduce": "median"}, "reduce.*'median'"),
        ({"reduce": "softmax"}, "apply_edge"),
        ({"reduce": "attention"}, "attention"),
        ({"own": "self"}, "own.*'self'"),
        ({"norm": "rows"}, "norm.*'rows'"),
        ({"reduce": "softmax", "apply_edge": lambda self, source, destination, weight: source}, "score"),
        ({"reduce": "softmax", "heads": 3, "apply_edge": lambda self, s, d, w: (s, w)}, "3 .*score"),
        ({"apply_edge": lambda self, source, destination, weight: (source, weight)}, "one tensor|softmax"),
    ],
    ids=["reduce", "softmax of rows", "attention", "own", "norm", "no score", "heads", "two messages"],
)
def test_a_layer_that_refers_to_a_missing_input_is_refused_before_it_is_run(attributes, message):
    layer = type("Odd", (dorylus.Layer,), attributes)
    with pytest.raises(ConfigError, match=message):
        lowered(dorylus.Program([GCN(6, 6), layer(6, 6)]))
