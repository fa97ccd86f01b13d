import inspect
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import dorylus
from dorylus.errors import ConfigError
from dorylus.saga import BUILDERS, GAT, GCN, GIN, SAGE, Layer
from dorylus.saga.reductions import REDUCTIONS


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


# For every option of a builder or a layer, a value that is not its default.
OTHER = {
    "hidden": 24, "num_layers": 3, "heads": 4, "output_heads": 2, "dropout": 0.25, "input_dropout": 0.125,
    "attention_dropout": 0.0625, "slope": 0.1, "eps": 0.5, "train_eps": True, "residual": True, "layer_norm": True,
    "activation": "tanh", "aggregator": "max", "concat": False, "bias": False,
}  # fmt: skip
LAYERS = (GCN, SAGE, GIN, GAT)


def options_of(function):
    """The names of a function's options, those of every layer among them."""
    own = inspect.signature(function).parameters.values()
    names = {each.name for each in own if each.name not in ("self", "in_columns", "out_columns")}
    return names - {"finish"} | options_of(Layer.__init__) if "finish" in names else names


def all_different(texts):
    return len(set(texts)) == len(texts)


@pytest.mark.parametrize("builder", BUILDERS)
def test_every_option_of_a_builder_changes_the_description(builder):
    make = BUILDERS[builder]
    settings = [{}, *({name: OTHER[name]} for name in sorted(options_of(make)))]
    assert all_different([make(**each).build(5, 3).describe() for each in settings])


@pytest.mark.parametrize("layer", LAYERS)
def test_every_option_of_a_layer_changes_the_description(layer):
    settings = [{}, *({name: OTHER[name]} for name in sorted(options_of(layer.__init__)))]
    assert all_different([dorylus.Program([layer(8, 8, **each)]).describe() for each in settings])


def test_different_layers_are_described_differently():
    assert all_different([dorylus.Program([layer(4, 4)]).describe() for layer in LAYERS])


@dataclass
class Setting:
    size: int


def of_class(**attributes):
    """The description of a program of one layer, whose class has these attributes."""
    return dorylus.Program([type("Own", (Layer,), attributes)(4, 4)]).describe()


def of_layer(**attributes):
    """The description of a program of one layer that has these attributes of its own."""
    layer = type("Own", (Layer,), {})(4, 4)
    for name, value in attributes.items():
        setattr(layer, name, value)
    return dorylus.Program([layer]).describe()


@pytest.mark.parametrize("describe", [of_class, of_layer])
def test_what_a_layer_declares_is_described(describe):
    values = {
        "reduce": ["mean", "max", replace(REDUCTIONS["sum"], name="mine"), replace(REDUCTIONS["mean"], name="mine")],
        "norm": ["symmetric", "mean"],
        "self_loops": [True],
        "own": ["prepared", "none"],
        "heads": [2],
    }
    texts = [describe(**{name: value}) for name, those in values.items() for value in those]
    assert all_different([describe(), *texts])


OTHER_SETTINGS = [
    2, 2.0, "2", b"2", True, [2], {"two": 2}, {2}, Setting(2), Setting(3), torch.float64, torch.float16, torch.ones(2),
    torch.zeros(2), np.zeros(2), np.ones(2), torch.tanh, torch.relu, partial(torch.clamp, min=2),
    partial(torch.clamp, min=3), nn.ReLU(), nn.LeakyReLU(0.1), nn.LeakyReLU(0.2), nn.Linear(2, 2),
    nn.Linear(2, 2, bias=False), nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 3), nn.Linear(2, 2).double(),
    nn.ModuleList([nn.ReLU()]), nn.ModuleList([nn.Tanh()]), [nn.ReLU()], [nn.Tanh()],
]  # fmt: skip


def test_settings_of_a_users_layer_are_described_whatever_their_type():
    texts = [of_layer(setting=value) for value in OTHER_SETTINGS]
    assert all_different(texts)
    assert texts[:15] == [of_layer(setting=value) for value in OTHER_SETTINGS[:15]]
    assert not any(" at 0x" in text or "\n" in text for text in texts)


def test_a_buffer_that_no_checkpoint_holds_is_described_by_its_numbers():
    def described(value, persistent):
        layer = type("Own", (Layer,), {})(4, 4)
        layer.register_buffer("mask", torch.full((3,), value), persistent=persistent)
        return dorylus.Program([layer]).describe()

    assert described(1.0, persistent=False) != described(2.0, persistent=False)
    assert described(1.0, persistent=True) == described(2.0, persistent=True)  # loaded with the weights


def test_the_order_a_plan_has_chosen_is_no_part_of_the_description():
    program = dorylus.gcn().build(5, 3)
    before = program.describe()
    program.layer(0).transform_first = False
    assert program.describe() == before
