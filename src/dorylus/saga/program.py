"""A program: layers in order; and the recipe, a program whose widths come from the graph."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from dorylus.errors import ConfigError
from dorylus.saga.checks import check_layer
from dorylus.saga.layer import Layer


class Program(nn.Module):
    """Layers in order, the output of each the input of the next. An ordinary torch module."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__()
        if not isinstance(layers, Sequence) or not layers:
            raise ConfigError(
                "a Program is made of a list of layers, at least one, as in Program([GCN(32, 8)]); a model of "
                "dorylus.gcn(...) needs no Program around it."
            )
        for index, layer in enumerate(layers):
            check_layer(index, layer)
            if index and layer.in_columns != layers[index - 1].out_columns:
                raise ConfigError(
                    f"layer {index} takes {layer.in_columns} columns but layer {index - 1} returns "
                    f"{layers[index - 1].out_columns}: make the two widths equal."
                )
        self.layers = nn.ModuleList(layers)

    def forward(self, *inputs: object) -> NoReturn:
        """Refused: a program has no gathers of its own."""
        raise ConfigError(
            "a Program is not called, because the graph's servers gather for it: dorylus.predict(graph, program) "
            "returns its logits, and result.predict() those of a run."
        )

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
        """One line that is equal for two programs exactly when they are built alike, weights aside.

        It has the public attributes of every layer and its parts, of their classes too. What bodies do is not in it.
        """
        return " > ".join(_describe(self.layer(index)) for index in range(self.num_layers))


# In which order the same is computed, and where: no part of a description.
_NOT_DESCRIBED = {"training", "transform_first", "commutes", "transforms_first_by_default", "accepts_sparse"}


def _describe(module: nn.Module) -> str:
    """A module's class, its settings, the shapes of its weights, and its parts."""
    found = {name: _text(value) for name, value in sorted(_settings(module).items())}
    weights = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    found |= {name: f"{_shape(weight)}{'' if weight.requires_grad else ' fixed'}" for name, weight in weights}
    passing = module._non_persistent_buffers_set  # no checkpoint has them
    found |= {name: _text(buffer) for name, buffer in module.named_buffers(recurse=False) if name in passing}
    found |= {name: _describe(part) for name, part in module.named_children()}
    return f"{type(module).__name__}({', '.join(f'{name}={text}' for name, text in found.items())})"


def _settings(module: nn.Module) -> dict[str, object]:
    """The public attributes of a module and of its classes, methods and properties aside."""
    classes = [each for each in type(module).__mro__ if issubclass(each, nn.Module) and each is not nn.Module]
    own = [each for each in classes if not each.__module__.startswith("torch.")]
    names = {name for each in own for name, value in vars(each).items() if _is_plain(value)} | vars(module).keys()
    return {name: getattr(module, name) for name in names - _NOT_DESCRIBED if not name.startswith("_")}


def _is_plain(value: object) -> bool:
    return not callable(value) and not hasattr(type(value), "__get__")


def _text(value: object) -> str:
    """A setting's value, as the same text in every process."""
    match value:
        case None | bool() | int() | float() | str() | bytes() | Enum() | torch.dtype():
            return repr(value)
        case Mapping():
            return f"{{{', '.join(f'{_text(key)}: {_text(each)}' for key, each in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(_text, value))}]"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(_text, value)))}}}"
        case torch.Tensor():
            flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            return f"{_shape(value)} {zlib.crc32(flat.numpy().data):08x}"
        case np.ndarray() | np.generic():
            return _text(torch.from_numpy(np.array(value)))
        case nn.Module():
            return _describe(value)
        case partial():
            return f"partial({_text(value.func)}, {_text(value.args)}, {_text(value.keywords)})"
    if is_dataclass(value) and not isinstance(value, type):
        inside = (f"{each.name}={_text(getattr(value, each.name))}" for each in fields(value))
        return f"{type(value).__name__}({', '.join(inside)})"
    return str(getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or type(value).__name__)


def _shape(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


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
