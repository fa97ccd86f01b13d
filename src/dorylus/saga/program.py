"""A program: layers in order; and the recipe, a program whose widths come from the graph."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dorylus.errors import ConfigError, unknown_name
from dorylus.saga.layer import Layer
from dorylus.saga.reductions import REDUCTIONS, Reduction, reduction_of


class Program(nn.Module):
    """Layers in order, the output of each the input of the next. An ordinary torch module."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__()
        if not isinstance(layers, Sequence) or not layers:
            raise ConfigError(
                "a Program is made of a list of layers, at least one; a builder's recipe needs none around it."
            )
        for index, layer in enumerate(layers):
            _check_layer(index, layer)
            if index and layer.in_columns != layers[index - 1].out_columns:
                raise ConfigError(
                    f"layer {index} takes {layer.in_columns} columns but layer {index - 1} returns "
                    f"{layers[index - 1].out_columns}: make the two widths equal."
                )
        self.layers = nn.ModuleList(layers)

    @property
    def in_columns(self) -> int:
        """The number of features the program takes."""
        return self.layer(0).in_columns

    @property
    def out_columns(self) -> int:
        """The number of classes it scores."""
        return self.layer(-1).out_columns

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        return len(self.layers)

    def layer(self, index: int) -> Layer:
        """One layer, typed."""
        layer = self.layers[index]
        assert isinstance(layer, Layer)
        return layer

    def to_pyg(self) -> list[nn.Module]:
        """PyG's convolutions with this program's weights, one a layer; the caller applies activations between them."""
        from dorylus.saga.pyg import to_pyg

        return to_pyg(self)

    def from_pyg(self, convs: Sequence[nn.Module]) -> "Program":
        """Copy the weights of PyG's convolutions, one a layer; returns the program itself."""
        from dorylus.saga.pyg import from_pyg

        return from_pyg(self, convs)

    def describe(self) -> str:
        """One line that is equal for two programs exactly when they are built alike, weights aside."""
        return " > ".join(_describe(self.layer(index)) for index in range(self.num_layers))


_KNOWN = {
    "reduce": tuple(REDUCTIONS),
    "norm": ("symmetric", "mean", "none"),
    "own": ("input", "prepared", "none"),
}
# Their output depends on more than a row and the weights: on a random draw, or on which rows come together.
_IMPURE = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase, nn.RReLU)


def _check_layer(index: int, layer: object) -> None:
    if not isinstance(layer, Layer):
        raise ConfigError(f"layer {index} is a {type(layer).__name__}: every layer must derive from dorylus.Layer.")
    for what, known in _KNOWN.items():
        value = getattr(layer, what)
        if value not in known and not (what == "reduce" and isinstance(value, Reduction)):
            raise ConfigError(f"layer {index}: " + unknown_name(what, str(value), known))
    _check_reduction(index, layer)
    for name, part in layer.named_modules():
        if isinstance(part, _IMPURE):
            raise ConfigError(
                f"layer {index} holds {name!r}, a {type(part).__name__}: bodies must be pure functions of the layer's "
                "weights and rows. Use dropout= of the layer for dropout, and LayerNorm (layer_norm=True) as a norm."
            )


def _check_reduction(index: int, layer: Layer) -> None:
    reduction = reduction_of(layer)
    if layer.has_apply_edge and reduction.messages is None:
        raise ConfigError(f"layer {index} reduces by {reduction}, which combines rows, not messages: omit apply_edge.")
    if not layer.has_apply_edge and reduction.rows is None:
        returns = " that returns (message, score)" if reduction.messages and reduction.messages.scores else ""
        raise ConfigError(f"layer {index} reduces by {reduction}: write an apply_edge{returns}.")


def _describe(layer: Layer) -> str:
    settings = {
        name: value
        for name, value in sorted(vars(layer).items())
        if not name.startswith("_") and name not in ("training", "transform_first") and _plain(value)
    }
    return f"{type(layer).__name__}({', '.join(f'{name}={value}' for name, value in settings.items())})"


def _plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str | Reduction)


@dataclass(frozen=True)
class Recipe:
    """A program without its widths: they come from the graph it is trained on."""

    name: str
    options: Mapping[str, Any]
    make: Callable[[int, int], Program] = field(repr=False, compare=False)

    def build(self, num_features: int, num_classes: int, *, seed: int = 0) -> Program:
        """The program for these widths, initialised from the seed; the global generator is left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.make(num_features, num_classes)
