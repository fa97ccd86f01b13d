"""Builders of the usual programs: ``gcn``, ``gat``, ``sage``, ``gin``; widths come from the graph later."""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, ParamSpec, get_args

from dorylus.errors import ConfigError, given, unknown_name, unknown_value
from dorylus.saga.gat import GAT
from dorylus.saga.gcn import GCN
from dorylus.saga.gin import GIN
from dorylus.saga.layer import ACTIVATIONS, Layer
from dorylus.saga.options import MEANT, WIDTH, checked
from dorylus.saga.program import Program, Recipe
from dorylus.saga.sage import SAGE, Aggregator

P = ParamSpec("P")


def _builder(make: Callable[P, Recipe]) -> Callable[P, Recipe]:
    """The builder with options of other names refused by a sentence."""
    known = inspect.signature(make).parameters
    positional = [name for name, each in known.items() if each.kind is each.POSITIONAL_OR_KEYWORD]

    @functools.wraps(make)
    def builder(*values: P.args, **options: P.kwargs) -> Recipe:
        if len(values) > len(positional):
            raise ConfigError(
                f"{make.__name__} takes {', '.join(positional)} by position, and {len(values)} values are given: name "
                f"the others, as in dorylus.{make.__name__}(activation='relu')."
            )
        for option in options:
            if option not in known:
                raise ConfigError(unknown_name(f"option of {make.__name__}", option, known, MEANT))
        return make(*values, **options)

    return builder


def _stack(
    name: str,
    options: dict[str, Any],
    widths: Callable[[int, int], list[tuple[int, int]]],
    layer: Callable[[int, int, int, dict[str, Any]], Layer],
) -> Recipe:
    """A recipe of equal layers: dropout before each, activation after all but the last."""
    dropout, input_dropout = options["dropout"], options["input_dropout"]
    _check_name("activation", options["activation"], ACTIVATIONS)

    def make(num_features: int, num_classes: int) -> Program:
        sizes = widths(num_features, num_classes)
        layers = []
        for index, (wide, out) in enumerate(sizes):
            last = index == len(sizes) - 1
            common = {
                "dropout": input_dropout if index == 0 and input_dropout is not None else dropout,
                "activation": None if last else options["activation"],
                "residual": options["residual"] and not last,
                "layer_norm": options["layer_norm"] and not last,
            }
            layers.append(layer(index, wide, out, common))
        return Program(layers)

    return Recipe(name, options, make)


def _check_name(option: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise ConfigError(unknown_value(option, value, known))


def _depth(hidden: int | Sequence[int], num_layers: int | None) -> int:
    """The number of layers: ``num_layers``, or else as many as the widths need, or else two."""
    if num_layers is not None:
        return num_layers
    return len(hidden) + 1 if isinstance(hidden, Sequence) else 2


def _plain_widths(hidden: int | Sequence[int], num_layers: int) -> Callable[[int, int], list[tuple[int, int]]]:
    inner = list(hidden) if isinstance(hidden, Sequence) else [hidden] * (num_layers - 1)
    if len(inner) != num_layers - 1:
        raise ConfigError(
            f"{given('hidden', inner)} names {len(inner)} widths, but {given('num_layers', num_layers)} has "
            f"{num_layers - 1} between them: use {given('num_layers', len(inner) + 1)}, or leave it out."
        )

    def widths(num_features: int, num_classes: int) -> list[tuple[int, int]]:
        sizes = [num_features, *inner, num_classes]
        return list(pairwise(sizes))

    return widths


@_builder
def gcn(
    hidden: int | Sequence[int] = 16,
    num_layers: int | None = None,
    dropout: float = 0.5,
    *,
    input_dropout: float | None = None,
    activation: str = "relu",
    residual: bool = False,
    layer_norm: bool = False,
) -> Recipe:
    """Graph convolutions (Kipf & Welling).

    ``dropout`` is applied to every layer's input, ``input_dropout`` to the features in its stead where it is given.
    """
    options = checked(dict(locals()))
    widths = _plain_widths(hidden, _depth(hidden, num_layers))
    return _stack("gcn", options, widths, lambda _, wide, out, common: GCN(wide, out, **common))


@_builder
def sage(
    hidden: int | Sequence[int] = 64,
    num_layers: int | None = None,
    dropout: float = 0.5,
    *,
    aggregator: Aggregator = "mean",
    input_dropout: float | None = None,
    activation: str = "relu",
    residual: bool = False,
    layer_norm: bool = False,
) -> Recipe:
    """GraphSAGE with a mean, max or sum aggregator."""
    options = checked(dict(locals()))
    _check_name("aggregator", aggregator, get_args(Aggregator))
    widths = _plain_widths(hidden, _depth(hidden, num_layers))
    return _stack(
        "sage", options, widths, lambda _, wide, out, common: SAGE(wide, out, aggregator=aggregator, **common)
    )


@_builder
def gin(
    hidden: int | Sequence[int] = 64,
    num_layers: int | None = None,
    dropout: float = 0.5,
    *,
    eps: float = 0.0,
    train_eps: bool = False,
    input_dropout: float | None = None,
    activation: str = "relu",
    residual: bool = False,
    layer_norm: bool = False,
) -> Recipe:
    """Graph isomorphism network, a two-layer perceptron per layer."""
    options = checked(dict(locals()))
    widths = _plain_widths(hidden, _depth(hidden, num_layers))
    return _stack(
        "gin", options, widths, lambda _, wide, out, common: GIN(wide, out, eps=eps, train_eps=train_eps, **common)
    )


@_builder
def gat(
    hidden: int = 8,
    heads: int = 8,
    num_layers: int | None = None,
    dropout: float = 0.6,
    *,
    output_heads: int = 1,
    attention_dropout: float | None = None,
    slope: float = 0.2,
    input_dropout: float | None = None,
    activation: str = "elu",
    residual: bool = False,
    layer_norm: bool = False,
) -> Recipe:
    """Graph attention: ``heads`` heads of ``hidden`` columns side by side, the last layer's heads averaged.

    ``attention_dropout`` is that of the attention coefficients; it is ``dropout`` unless given.
    """
    options = checked(dict(locals()), hidden=WIDTH)
    depth = _depth(hidden, num_layers)
    widths = _plain_widths(hidden * heads, depth)
    on_attention = dropout if attention_dropout is None else attention_dropout

    def layer(index: int, wide: int, out: int, common: dict[str, Any]) -> Layer:
        last = index == depth - 1
        own_heads = output_heads if last else heads
        return GAT(wide, out, heads=own_heads, concat=not last, slope=slope, attention_dropout=on_attention, **common)

    return _stack("gat", options, widths, layer)


BUILDERS: Mapping[str, Callable[..., Recipe]] = {"gat": gat, "gcn": gcn, "gin": gin, "sage": sage}


def build(name: str, **options: Any) -> Recipe:
    """The recipe of a builder by its name, with its options checked."""
    if name not in BUILDERS:
        raise ConfigError(unknown_name("model", name, BUILDERS))
    return BUILDERS[name](**options)
