import pytest
import torch
from torch import nn

import dorylus
from dorylus.errors import ConfigError
from dorylus.saga import GAT, GCN, GIN, SAGE


@pytest.mark.parametrize("layers", [[], dorylus.gcn(), GCN(3, 4)], ids=["none", "recipe", "layer"])
def test_a_program_is_made_of_a_list_of_layers(layers):
    with pytest.raises(ConfigError, match="a list of layers, at least one"):
        dorylus.Program(layers)


class Own(dorylus.Layer):
    """A user's layer with some part in it."""

    def __init__(self, part):
        super().__init__(4, 4)
        self.inner = nn.Sequential(nn.Linear(4, 4), part)

    def apply_vertex(self, own, gathered):
        return self.inner(gathered)


@pytest.mark.parametrize("part", [nn.Dropout(0.5), nn.BatchNorm1d(4), nn.RReLU()], ids=lambda part: type(part).__name__)
def test_a_body_that_is_no_pure_function_of_its_rows_is_refused(part):
    with pytest.raises(ConfigError, match=r"layer 1 holds 'inner\.1', a .*bodies must be pure functions"):
        dorylus.Program([GCN(4, 4), Own(part)])


def test_a_layer_norm_is_a_pure_function_of_its_rows():
    assert dorylus.Program([Own(nn.LayerNorm(4))]).num_layers == 1


def test_every_layer_derives_from_layer():
    with pytest.raises(ConfigError, match=r"layer 1 is a Linear: every layer must derive from dorylus\.Layer"):
        dorylus.Program([GCN(3, 4), nn.Linear(4, 2)])


def test_widths_of_neighbouring_layers_must_meet():
    with pytest.raises(ConfigError, match="layer 1 takes 5 columns but layer 0 returns 4: make the two widths equal"):
        dorylus.Program([GCN(3, 4), SAGE(5, 2)])


def test_a_program_knows_its_shape():
    program = dorylus.Program([GCN(3, 4), SAGE(4, 6), GIN(6, 2)])
    assert (program.in_columns, program.out_columns, program.num_layers) == (3, 2, 3)
    assert isinstance(program.layer(1), SAGE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_columns": 0}, "both must be at least 1"),
        ({"out_columns": 0}, "both must be at least 1"),
        ({"dropout": 1.0}, "at least 0 and less than 1: use dropout=0.5"),
        ({"dropout": -0.1}, "at least 0 and less than 1: use dropout=0.5"),
        ({"activation": "rleu"}, "Did you mean 'relu'"),
    ],
)
def test_a_layer_refuses_invalid_options(options, message):
    with pytest.raises(ConfigError, match=message):
        GCN(**({"in_columns": 3, "out_columns": 2} | options))


def test_heads_share_the_columns_of_an_attention_layer_equally():
    assert GAT(4, 6, heads=3).head_columns == 2
    assert GAT(4, 5, heads=3, concat=False).head_columns == 5
    with pytest.raises(ConfigError, match="3 heads cannot share 5 columns equally"):
        GAT(4, 5, heads=3)


def test_an_unknown_aggregator_lists_the_known_ones():
    with pytest.raises(ConfigError, match="max, mean, sum"):
        SAGE(3, 2, aggregator="median")


def test_finish_is_norm_then_activation_then_residual():
    layer = GCN(3, 3, activation="relu", residual=True, layer_norm=True)
    x, y = torch.randn(5, 3), torch.randn(5, 3)
    assert torch.equal(layer.finish(x, y), torch.relu(nn.functional.layer_norm(y, [3])) + x)


def test_a_residual_between_different_widths_is_a_linear_map():
    assert isinstance(GCN(3, 2, residual=True).residual, nn.Linear)
    assert isinstance(GCN(3, 3, residual=True).residual, nn.Identity)


def test_the_same_program_is_described_alike_and_weights_do_not_matter():
    first, second = (dorylus.gat(heads=2).build(5, 3, seed=seed) for seed in (0, 1))
    assert first.describe() == second.describe()
    assert "\n" not in first.describe()


@pytest.mark.parametrize(
    ("builder", "option"),
    [
        ("gcn", {"hidden": 17}),
        ("gcn", {"num_layers": 3}),
        ("gcn", {"dropout": 0.25}),
        ("gcn", {"input_dropout": 0.0}),
        ("gcn", {"activation": "elu"}),
        ("gcn", {"residual": True}),
        ("gcn", {"layer_norm": True}),
        ("sage", {"aggregator": "max"}),
        ("gat", {"heads": 4, "hidden": 16}),
        ("gat", {"output_heads": 2}),
        ("gat", {"slope": 0.1}),
        ("gat", {"attention_dropout": 0.1}),
        ("gin", {"eps": 0.5}),
        ("gin", {"train_eps": True}),
    ],
    ids=lambda value: str(value),
)
def test_an_option_that_changes_the_program_changes_its_description(builder, option):
    make = getattr(dorylus, builder)
    assert make(**option).build(5, 3).describe() != make().build(5, 3).describe()


def test_different_layers_are_described_differently():
    texts = {dorylus.Program([layer(4, 4)]).describe() for layer in (GCN, SAGE, GIN, GAT)}
    assert len(texts) == 4


def test_the_order_a_plan_has_chosen_is_no_part_of_the_description():
    program = dorylus.gcn().build(5, 3)
    before = program.describe()
    program.layer(0).transform_first = False
    assert program.describe() == before
