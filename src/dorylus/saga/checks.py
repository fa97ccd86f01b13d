"""What a layer must hold to, checked before a run: its declarations, and that its dense bodies are pure.

Bodies run on any pool, in any order and on any split of the rows, and again for their gradients. Each body of a layer
that is not ours is therefore called on a few rows: twice, and on some of them alone.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import torch
from torch import Tensor, nn

from dorylus.errors import ConfigError, kind_of, unknown_name
from dorylus.graph import Norm
from dorylus.saga.layer import Layer, Own
from dorylus.saga.reductions import REDUCTIONS, Reduction, reduction_of

ROWS, SOME_ROWS = 8, 3
_KNOWN = {
    "reduce": tuple(REDUCTIONS),
    "norm": get_args(Norm),
    "own": get_args(Own),
}
# Their output depends on more than a row and the weights: on a random draw, or on which rows come together.
_IMPURE = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase, nn.RReLU)
_GROWS = (list, dict, set)
_PURE = "a body is a pure function of the layer's weights and its rows"


def check_layer(index: int, layer: object) -> None:
    """Refuse what is no layer, or declares what there is not."""
    if not isinstance(layer, Layer):
        if isinstance(layer, type) and issubclass(layer, Layer):
            raise ConfigError(f"layer {index} is the class {layer.__name__}: make one, as in {layer.__name__}(32, 8).")
        of_pyg = type(layer).__module__.startswith("torch_geometric.")
        raise ConfigError(
            f"layer {index} is {kind_of(layer)}: every layer must derive from dorylus.Layer (docs/layers.md)."
            + (" Program.from_pyg copies the weights of PyG's GCN, GAT, SAGE and GIN into ours." if of_pyg else "")
        )
    name = type(layer).__name__
    if "in_columns" not in vars(layer):
        raise ConfigError(
            f"layer {index} ({name}) knows no widths: call super().__init__(in_columns, out_columns) in its __init__."
        )
    if type(layer).forward is not Layer.forward:
        raise ConfigError(
            f"layer {index} ({name}) defines forward, which is never called: write prepare, apply_edge or apply_vertex "
            "in its stead (docs/layers.md)."
        )
    for what, known in _KNOWN.items():
        value = getattr(layer, what)
        if value not in known and not (what == "reduce" and isinstance(value, Reduction)):
            named = [name for name in known if name != "attention"]  # of GAT alone
            raise ConfigError(f"layer {index}: " + unknown_name(what, str(value), named, {"add": "sum"}))
    _check_reduction(index, layer)
    for part_name, part in layer.named_modules():
        if isinstance(part, _IMPURE):
            raise ConfigError(
                f"layer {index} holds {part_name!r}, a {type(part).__name__}: bodies must be pure functions of the "
                "layer's weights and rows. Use dropout= of the layer for dropout, and LayerNorm (layer_norm=True) as a "
                "norm."
            )


def _check_reduction(index: int, layer: Layer) -> None:
    reduction = reduction_of(layer)
    if layer.has_apply_edge and reduction.messages is None:
        raise ConfigError(f"layer {index} reduces by {reduction}, which combines rows, not messages: omit apply_edge.")
    if not layer.has_apply_edge and reduction.rows is None:
        returns = " that returns (message, score)" if reduction.messages and reduction.messages.scores else ""
        raise ConfigError(f"layer {index} reduces by {reduction}: write an apply_edge{returns}.")


def label(method: str, index: int, layer: Layer) -> str:
    """A body in the user's terms, for errors."""
    return f"{method} of layer {index} ({type(layer).__name__})"


def probe(name: str, body: Callable[..., Any], *inputs: Tensor) -> tuple[Tensor, ...]:
    """A body's outputs for some rows: float32 tensors with as many rows."""
    rows = inputs[0].shape[0]
    try:
        with torch.no_grad():
            made = body(*inputs)
    except Exception as error:  # a user's body may raise anything
        shape = " and ".join(str(list(each.shape)) for each in inputs)
        raise ConfigError(
            f"{name} fails on rows of shape {shape}: {type(error).__name__}: {' '.join(str(error).split())}. "
            "Mend it, or the widths of the layer."
        ) from error
    outputs = made if isinstance(made, tuple) else (made,)
    for each in outputs:
        if not isinstance(each, Tensor):
            raise ConfigError(f"{name} returns {kind_of(each)}: return a tensor with a row for each row it gets.")
        if each.ndim != 2 or each.shape[0] != rows:
            raise ConfigError(
                f"{name} returns a tensor of shape {list(each.shape)} for {rows} rows: return [{rows}, columns], one "
                "row for each."
            )
        if each.dtype != torch.float32:
            raise ConfigError(f"{name} returns {each.dtype}: rows are float32, so call .float() on what it returns.")
    return outputs


def check_bodies(layers: Sequence[Layer]) -> None:
    """Refuse bodies that draw at random, keep state, mix rows, change their arguments or return another width.

    ``layers`` are those of a plan: whether one transforms first is decided. They are called, and thrown away.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for index, layer in enumerate(layers):
            if not type(layer).__module__.startswith("dorylus."):
                _check_bodies(index, layer)


def _check_bodies(index: int, layer: Layer) -> None:
    x = torch.randn(ROWS, layer.in_columns)
    prepared = _checked(label("prepare", index, layer), layer, layer.prepare, x) if layer.prepares else (x,)
    made = prepared
    if layer.has_apply_edge:
        edge_weight = torch.rand(ROWS, 1)
        made = _checked(
            label("apply_edge", index, layer), layer, layer.apply_edge, prepared[0], prepared[-1], edge_weight
        )
    own = {"input": x, "prepared": prepared[0], "none": None}[layer.own]
    name = label("apply_vertex", index, layer)
    gathered = torch.randn(ROWS, made[0].shape[1])
    if own is None:
        (output, *more) = _checked(name, layer, lambda rows: layer.apply_vertex(None, rows), gathered)  # type: ignore[arg-type]
    else:
        (output, *more) = _checked(name, layer, layer.apply_vertex, own, gathered)
    if more:
        raise ConfigError(f"{name} returns {len(more) + 1} tensors: return one, of {layer.out_columns} columns.")
    if output.shape[1] != layer.out_columns:
        raise ConfigError(
            f"{name} returns {output.shape[1]} columns, but the layer was made for {layer.out_columns}: return "
            f"[rows, {layer.out_columns}], or make the layer with out_columns={output.shape[1]}."
        )


def _checked(name: str, layer: Layer, body: Callable[..., Any], *inputs: Tensor) -> tuple[Tensor, ...]:
    """The body's outputs, once it is seen to be pure."""
    copies = [each.clone() for each in inputs]
    generator = torch.get_rng_state()
    first = probe(name, body, *inputs)
    if not torch.equal(generator, torch.get_rng_state()):
        raise ConfigError(
            f"{name} draws random numbers, but {_PURE}: use dropout= of the layer for dropout, and draw nothing else."
        )
    if not all(map(torch.equal, copies, inputs)):
        raise ConfigError(
            f"{name} changes an argument in place, but other bodies read the same rows: return a new tensor (x * 2, "
            "not x.mul_(2))."
        )
    first = tuple(each.clone() for each in first)
    before = dict(_state(layer))
    again = probe(name, body, *copies)
    changed = [key for key, held in _state(layer) if key not in before or not _is_same(before[key], held)]
    if changed:
        raise ConfigError(f"{name} changes self.{changed[0]}, but {_PURE}: keep nothing on the layer between calls.")
    if not all(map(_close, first, again)):
        raise ConfigError(
            f"{name} returns other values for the same rows when it is called again, but {_PURE}: draw nothing at "
            "random, and keep nothing between calls."
        )
    some = probe(name, body, *(each[:SOME_ROWS] for each in inputs))
    if not all(_close(each[:SOME_ROWS], part) for each, part in zip(first, some, strict=True)):
        raise ConfigError(
            f"{name} returns other values for the same rows when they come without others, but rows are cut into "
            "intervals: compute each row from that row alone; layer_norm=True normalises within a row."
        )
    return first


def _state(layer: Layer) -> Iterator[tuple[str, tuple[object, object]]]:
    """What a layer and its parts hold, each with a figure that changes with its content."""
    for path, part in layer.named_modules():
        for key, value in {**vars(part), **part._buffers}.items():
            figure = value._version if isinstance(value, Tensor) else len(value) if isinstance(value, _GROWS) else None
            yield f"{path}.{key}".lstrip("."), (value, figure)


def _is_same(before: tuple[object, object], after: tuple[object, object]) -> bool:
    if isinstance(after[0], int | float | str):
        return type(before[0]) is type(after[0]) and before[0] == after[0]
    return before[0] is after[0] and before[1] == after[1]


def _close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
