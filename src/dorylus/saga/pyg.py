"""Weights to and from PyG: each of our layers and its PyG convolution share parameter names and shapes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dorylus.errors import ConfigError
from dorylus.saga.gat import GAT
from dorylus.saga.gcn import GCN
from dorylus.saga.gin import GIN
from dorylus.saga.layer import Layer
from dorylus.saga.program import Program
from dorylus.saga.sage import SAGE


def to_pyg(program: Program) -> list[nn.Module]:
    """PyG's convolutions with this program's weights; activation and dropout stay outside, as they do there."""
    convs = []
    for index in range(program.num_layers):
        layer = program.layer(index)
        for what, part in (("a layer norm", layer.norm_out), ("a residual", layer.residual)):
            if part is not None:
                raise ConfigError(
                    f"layer {index} has {what}, for which PyG's convolutions have no place: build it in PyG yourself "
                    "from state_dict(), or train without."
                )
        conv = _convolution(layer)
        conv.load_state_dict({name: layer.state_dict()[name] for name in conv.state_dict()})
        convs.append(conv)
    return convs


def from_pyg(program: Program, convs: Sequence[nn.Module]) -> Program:
    """Copy the weights of PyG's convolutions into a program of the same shape; returns the program."""
    if len(convs) != program.num_layers:
        raise ConfigError(f"{len(convs)} convolutions for a program of {program.num_layers} layers: pass one for each.")
    for index, conv in enumerate(convs):
        own = program.layer(index).state_dict()
        for name, value in conv.state_dict().items():
            if name not in own or own[name].shape != value.shape:
                found = "none" if name not in own else list(own[name].shape)
                raise ConfigError(
                    f"convolution {index} has {name!r} of shape {list(value.shape)}, layer {index} has {found}: "
                    "build the program with the same kinds of layers and widths."
                )
    with torch.no_grad():
        for index, conv in enumerate(convs):
            program.layer(index).load_state_dict({**program.layer(index).state_dict(), **conv.state_dict()})
    return program


def _convolution(layer: Layer) -> nn.Module:
    nn_pyg = _package()
    shape = (layer.in_columns, layer.out_columns)
    if isinstance(layer, GCN):
        return nn_pyg.GCNConv(*shape, bias=layer.bias is not None)  # type: ignore[no-any-return]
    if isinstance(layer, SAGE):
        return nn_pyg.SAGEConv(*shape, aggr=layer.reduce)  # type: ignore[no-any-return]
    if isinstance(layer, GIN):
        mlp = nn.Sequential(
            *(type(m)(m.in_features, m.out_features) if isinstance(m, nn.Linear) else nn.ReLU() for m in layer.nn)
        )
        return nn_pyg.GINConv(mlp, train_eps=isinstance(layer.eps, nn.Parameter))  # type: ignore[no-any-return]
    if isinstance(layer, GAT):
        return nn_pyg.GATConv(  # type: ignore[no-any-return]
            layer.in_columns, layer.head_columns, heads=layer.heads, concat=layer.concat, negative_slope=layer.slope
        )
    raise ConfigError(f"{type(layer).__name__} has no PyG convolution: only GCN, GAT, SAGE and GIN have one.")


def _package() -> Any:
    try:
        import torch_geometric.nn
    except ImportError as error:
        raise ConfigError('PyG is not installed: install it by `pip install "dorylus[pyg]"`.') from error
    return torch_geometric.nn
