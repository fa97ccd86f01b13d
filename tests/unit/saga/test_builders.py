import inspect
import math

import pytest
import torch

import dorylus
from dorylus.errors import ConfigError
from dorylus.saga import BUILDERS, GAT, GCN, GIN, SAGE, build


def widths(program):
    return [(program.layer(k).in_columns, program.layer(k).out_columns) for k in range(program.num_layers)]


@pytest.mark.parametrize(("name", "layer"), [("gcn", GCN), ("gat", GAT), ("sage", SAGE), ("gin", GIN)])
def test_a_builder_stacks_its_layers_between_features_and_classes(name, layer):
    program = build(name, hidden=4, num_layers=3).build(10, 3)
    assert all(type(program.layer(k)) is layer for k in range(3))
    assert (program.in_columns, program.out_columns) == (10, 3)


def test_hidden_widths_may_differ():
    assert widths(dorylus.gcn(hidden=[8, 5], num_layers=3).build(10, 3)) == [(10, 8), (8, 5), (5, 3)]


def test_one_layer_goes_from_features_to_classes():
    assert widths(dorylus.sage(num_layers=1).build(10, 3)) == [(10, 3)]


def test_attention_heads_stand_side_by_side_but_in_the_last_layer():
    program = dorylus.gat(hidden=4, heads=3, output_heads=2).build(10, 5)
    assert widths(program) == [(10, 12), (12, 5)]
    first, last = program.layer(0), program.layer(1)
    assert (first.heads, first.concat, last.heads, last.concat) == (3, True, 2, False)


def test_dropout_precedes_every_layer_and_activation_follows_all_but_the_last():
    program = dorylus.gcn(num_layers=3, dropout=0.3, activation="tanh").build(10, 3)
    assert [program.layer(k).dropout for k in range(3)] == [0.3] * 3
    assert [program.layer(k).activation for k in range(3)] == ["tanh", "tanh", None]


def test_input_dropout_stands_in_for_the_first_layers():
    program = dorylus.gin(dropout=0.3, input_dropout=0.0).build(10, 3)
    assert [program.layer(k).dropout for k in range(2)] == [0.0, 0.3]


def test_attention_dropout_is_dropout_unless_given():
    assert dorylus.gat(dropout=0.3).build(4, 2).layer(0).attention_dropout == 0.3
    assert dorylus.gat(dropout=0.3, attention_dropout=0.0).build(4, 2).layer(0).attention_dropout == 0.0


@pytest.mark.parametrize("name", BUILDERS)
def test_residual_and_layer_norm_are_in_every_layer_but_the_last(name):
    program = build(name, hidden=4, residual=True, layer_norm=True).build(10, 3)
    assert [program.layer(k).residual is not None for k in range(2)] == [True, False]
    assert [program.layer(k).norm_out is not None for k in range(2)] == [True, False]


@pytest.mark.parametrize("name", BUILDERS)
def test_the_seed_alone_decides_the_weights(name):
    state = torch.get_rng_state()
    first, again, other = (build(name).build(6, 3, seed=seed).state_dict() for seed in (4, 4, 5))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)
    assert torch.equal(torch.get_rng_state(), state)  # the user's generator is left alone


def test_options_are_remembered_by_name():
    recipe = dorylus.sage(hidden=5, aggregator="max")
    assert recipe.name == "sage"
    assert recipe.options["hidden"] == 5
    assert recipe.options["aggregator"] == "max"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gcnn", {}, r"unknown model 'gcnn': the known ones are gat, gcn, gin, sage\. Did you mean 'gcn'"),
        ("gcn", {"heads": 3}, "unknown option of gcn 'heads'"),
        ("gcn", {"hiden": 3}, "Did you mean 'hidden'"),
        (
            "gcn",
            {"num_layers": 0},
            "num_layers is a whole number, at least 1 and at most 100, or left out: use num_layers=2",
        ),
        (
            "gcn",
            {"hidden": [4, 4], "num_layers": 2},
            "names 2 widths, but num_layers=2 has 1 between them: use num_layers=3",
        ),
        ("gcn", {"hidden": 0}, "hidden=0, but hidden is a whole number, at least 1 .* list of them.*: use hidden=16"),
        ("gcn", {"hidden": [8, 0]}, r"hidden=\[8, 0\], but hidden is a whole number, at least 1"),
        ("gcn", {"dropout": math.nan}, "dropout=nan, but dropout is the share of entries .*: use dropout=0.5"),
        ("gat", {"heads": 0}, "heads=0, but heads is a whole number, at least 1 and at most 4,096: use heads=8"),
    ],
)
def test_an_invalid_model_is_refused_with_the_cure(name, options, message):
    with pytest.raises(ConfigError, match=message):
        build(name, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gcn", {"hidden": "x"}),
        ("gcn", {"hidden": 1.5}),
        ("gcn", {"hidden": [1.5]}),
        ("gcn", {"hidden": True}),
        ("gcn", {"num_layers": 2.5}),
        ("gcn", {"num_layers": "two"}),
        ("gcn", {"dropout": "a"}),
        ("gcn", {"dropout": None}),
        ("gcn", {"input_dropout": "a"}),
        ("gcn", {"activation": 5}),
        ("gcn", {"activation": ["relu"]}),
        ("gcn", {"residual": "maybe"}),
        ("gcn", {"layer_norm": 3}),
        ("gat", {"heads": "x"}),
        ("gat", {"heads": 2.5}),
        ("gat", {"hidden": [8]}),
        ("gat", {"slope": "steep"}),
        ("gat", {"attention_dropout": "a"}),
        ("gin", {"eps": "x"}),
        ("gin", {"train_eps": "x"}),
        ("sage", {"aggregator": ["mean"]}),
    ],
    ids=str,
)
def test_an_option_of_the_wrong_kind_is_refused_by_name(name, options):
    """The command line and run.toml pass values on unchecked."""
    (option,) = options
    with pytest.raises(ConfigError, match=option):
        build(name, **options).build(6, 3)


def test_a_list_of_widths_sets_the_depth():
    assert [dorylus.gcn(hidden=[8, 4]).build(6, 3).layer(k).out_columns for k in range(3)] == [8, 4, 3]
    assert dorylus.gcn(hidden=8).build(6, 3).num_layers == 2


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gat", {"slope": -0.3}, "slope=-0.3, but slope is a number, at least 0"),
        ("gin", {"eps": math.inf}, "eps=inf, but eps is a finite number"),
    ],
)
def test_values_no_layer_can_have_are_refused_when_it_is_made(name, options, message):
    with pytest.raises(ConfigError, match=message):
        build(name, **options).build(6, 3)


NUMBERS = {
    name: [
        each.name
        for each in inspect.signature(builder).parameters.values()
        if "int" in str(each.annotation) or "float" in str(each.annotation)
    ]
    for name, builder in BUILDERS.items()
}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, "many"], ids=lambda value: str(value)[:4])
@pytest.mark.parametrize(("name", "option"), [(name, option) for name in BUILDERS for option in NUMBERS[name]])
def test_an_invalid_number_is_refused_by_name_with_the_rule_and_a_typical_value(name, option, value):
    with pytest.raises(ConfigError, match=rf"^{option}=\S+, but {option} is .+: use {option}=\S+, for instance\.$"):
        build(name, **{option: value})


@pytest.mark.parametrize("layer", [GAT, GCN, GIN, SAGE])
def test_a_layer_that_is_made_by_hand_refuses_the_same_numbers(layer):
    with pytest.raises(ConfigError, match=r"^dropout=nan, but dropout is the share of entries .*: use dropout="):
        layer(4, 2, dropout=math.nan)
