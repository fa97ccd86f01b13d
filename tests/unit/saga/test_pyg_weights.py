import pytest
import torch
from torch import nn

import dorylus
from dorylus.errors import ConfigError
from dorylus.saga import GCN, GIN

pytest.importorskip("torch_geometric")

RECIPES = {
    "GCNConv": dorylus.gcn(hidden=5, num_layers=3),
    "SAGEConv": dorylus.sage(hidden=5, aggregator="max"),
    "GINConv": dorylus.gin(hidden=5, eps=0.25, train_eps=True),
    "GATConv": dorylus.gat(hidden=3, heads=2, output_heads=2, slope=0.3),
}


@pytest.mark.parametrize("conv", RECIPES)
def test_weights_go_to_pyg_and_come_back(conv):
    program = RECIPES[conv].build(7, 4, seed=1)
    convs = program.to_pyg()
    assert [type(each).__name__ for each in convs] == [conv] * program.num_layers
    other = RECIPES[conv].build(7, 4, seed=2)
    assert any(not torch.equal(a, b) for a, b in zip(program.parameters(), other.parameters(), strict=True))
    assert other.from_pyg(convs) is other
    for name, value in program.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name


@pytest.mark.parametrize("conv", RECIPES)
def test_a_layers_state_loads_into_its_convolution_by_name(conv):
    program = RECIPES[conv].build(7, 4)
    for index, each in enumerate(RECIPES[conv].build(7, 4, seed=9).to_pyg()):
        each.load_state_dict(program.layer(index).state_dict())
        own = program.layer(index).state_dict()
        assert all(torch.equal(value, own[name]) for name, value in each.state_dict().items())


@pytest.mark.parametrize("train_eps", [False, True])
def test_the_share_of_the_vertex_itself_is_converted_too(train_eps):
    program = dorylus.Program([GIN(3, 2, eps=0.75, train_eps=train_eps)])
    (conv,) = program.to_pyg()
    assert conv.eps.item() == 0.75
    assert isinstance(conv.eps, nn.Parameter) is train_eps


def test_a_layer_without_bias_becomes_a_convolution_without():
    (conv,) = dorylus.Program([GCN(3, 2, bias=False)]).to_pyg()
    assert conv.bias is None


def test_attention_options_are_converted_too():
    first, last = dorylus.gat(hidden=3, heads=2, output_heads=4, slope=0.3).build(7, 5).to_pyg()
    assert (first.heads, first.concat, first.negative_slope) == (2, True, 0.3)
    assert (last.heads, last.concat, last.out_channels) == (4, False, 5)


def test_the_number_of_convolutions_must_be_that_of_the_layers():
    program = dorylus.gcn().build(7, 4)
    with pytest.raises(ConfigError, match="1 convolutions for a program of 2 layers: pass one for each"):
        program.from_pyg(program.to_pyg()[:1])


def test_convolutions_of_another_width_are_refused_and_change_nothing():
    program = dorylus.gcn(hidden=5).build(7, 4)
    before = {name: value.clone() for name, value in program.state_dict().items()}
    with pytest.raises(ConfigError, match=r"convolution 0 has 'bias' of shape \[6\], layer 0 has \[5\]: build"):
        program.from_pyg(dorylus.gcn(hidden=6).build(7, 4).to_pyg())
    assert all(torch.equal(before[name], value) for name, value in program.state_dict().items())


def test_a_refusal_of_a_later_convolution_changes_nothing_either():
    program = dorylus.gcn(hidden=5).build(7, 4, seed=0)
    before = {name: value.clone() for name, value in program.state_dict().items()}
    with pytest.raises(ConfigError, match="convolution 1"):
        program.from_pyg(dorylus.gcn(hidden=5).build(7, 6, seed=1).to_pyg())
    assert all(torch.equal(before[name], value) for name, value in program.state_dict().items())


def test_a_users_layer_has_no_convolution():
    class Own(dorylus.Layer):
        pass

    with pytest.raises(ConfigError, match="Own has no PyG convolution"):
        dorylus.Program([Own(3, 3)]).to_pyg()


@pytest.mark.parametrize(("option", "what"), [("layer_norm", "a layer norm"), ("residual", "a residual")])
def test_options_without_a_pyg_counterpart_are_refused(option, what):
    program = dorylus.gcn(**{option: True}).build(7, 4)
    with pytest.raises(ConfigError, match=f"layer 0 has {what}, for which PyG's convolutions have no place"):
        program.to_pyg()
