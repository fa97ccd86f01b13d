"""The layer: an ordinary ``torch.nn.Module`` with dense bodies and a kind of gather.

A layer turns one row per vertex into another:

    z = prepare(x)                      dense, per vertex      (ApplyVertex; the identity unless overridden)
    m = apply_edge(z[u], z[v], w)       dense, per edge u -> v (ApplyEdge; left out unless overridden)
    g = reduce of z[u] (or m) over v's in-edges                (Gather, on the graph server)
    y = apply_vertex(own, g)            dense, per vertex      (ApplyVertex)

and finishes with what every layer may have: layer norm, activation, residual. Dense bodies must be pure functions
of the layer's parameters and their arguments: they run on any pool, in any order, on any split of the rows, and their
gradients come from autograd. Graph servers apply dropout: use ``dropout=``, and do not draw random numbers in a body.
"""

from collections.abc import Callable
from numbers import Integral
from typing import ClassVar, Literal

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from dorylus.errors import ConfigError, short_repr, unknown_name
from dorylus.graph import Norm
from dorylus.saga.options import checked
from dorylus.saga.reductions import Reduction, reduction_of
from dorylus.saga.sparse import SparseRows

Rows = Tensor | SparseRows
Reduce = Literal["sum", "mean", "max", "softmax", "attention"]  # the names in REDUCTIONS
Own = Literal["input", "prepared", "none"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": f.relu,
    "elu": f.elu,
    "gelu": f.gelu,
    "leaky_relu": f.leaky_relu,
    "sigmoid": torch.sigmoid,
    "silu": f.silu,
    "tanh": torch.tanh,
}


class Layer(nn.Module):
    """A graph layer. Subclass it, set the class attributes that differ, and write the bodies.

    - ``reduce``: how in-edges are combined. ``"softmax"`` weighs messages by the softmax of scores over each
      vertex's in-edges, and needs an ``apply_edge`` that returns ``(message, score)`` with ``heads`` scores.
      A :class:`dorylus.saga.Reduction` is a kind of gather of the layer's own.
    - ``norm``: ``"symmetric"``, ``"mean"`` or ``"none"``: the weights edges carry in a sum; ``self_loops`` adds the
      missing ones first.
    - ``own``: what ``apply_vertex`` receives of the vertex itself: the layer's ``"input"``, the ``"prepared"`` row,
      or ``"none"``.
    - ``commutes``: ``prepare`` is linear and may be moved behind the gather. The program then picks the cheaper
      order and sets ``transform_first``; the bodies must follow it (see :mod:`dorylus.saga.gcn`).
    """

    reduce: Reduce | Reduction = "sum"
    norm: Norm = "none"
    self_loops: bool = False
    own: Own = "input"
    heads: int = 1

    commutes: bool = False
    transforms_first_by_default: ClassVar[bool] = True
    accepts_sparse: ClassVar[bool] = False

    def __init__(
        self,
        in_columns: int,
        out_columns: int,
        *,
        dropout: float = 0.0,
        activation: str | None = None,
        residual: bool = False,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        for name, width in (("in_columns", in_columns), ("out_columns", out_columns)):
            if isinstance(width, bool) or not isinstance(width, Integral):
                raise ConfigError(f"{name}={short_repr(width)}, but a width is a whole number: give one, such as 16.")
        if in_columns < 1 or out_columns < 1:
            raise ConfigError(f"a layer of {in_columns} -> {out_columns} columns: both must be at least 1.")
        checked({"dropout": dropout})
        if activation is not None and activation not in ACTIVATIONS:
            raise ConfigError(unknown_name("activation", activation, ACTIVATIONS))
        self.in_columns = int(in_columns)
        self.out_columns = int(out_columns)
        self.dropout = dropout
        self.activation = activation
        self.transform_first = type(self).transforms_first_by_default
        self.residual: nn.Module | None = None
        if residual:
            self.residual = nn.Identity() if in_columns == out_columns else nn.Linear(in_columns, out_columns)
        self.norm_out: nn.Module | None = nn.LayerNorm(out_columns) if layer_norm else None

    def prepare(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """What neighbours read of a vertex; the identity unless overridden."""
        return x

    def apply_edge(self, source: Tensor, destination: Tensor, weight: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """The message of each edge from its two prepared rows and its weight; override to have one."""
        raise NotImplementedError

    def apply_vertex(self, own: Tensor, gathered: Tensor) -> Tensor:
        """The layer's output before norm, activation and residual, from the vertex's own row and what it gathered."""
        return gathered

    def finish(self, x: Tensor | None, y: Tensor) -> Tensor:
        """Layer norm, activation and residual, in this order: act(norm(y)) + residual(x)."""
        if self.norm_out is not None:
            y = self.norm_out(y)
        if self.activation is not None:
            y = ACTIVATIONS[self.activation](y)
        if self.residual is not None:
            assert x is not None
            y = y + self.residual(x)
        return y

    @property
    def prepares(self) -> bool:
        """Whether ``prepare`` does anything, given the order chosen."""
        return self.transform_first and type(self).prepare is not Layer.prepare

    @property
    def has_apply_edge(self) -> bool:
        """Whether the layer computes messages on its edges."""
        return type(self).apply_edge is not Layer.apply_edge

    @property
    def plain_gather_columns(self) -> int:
        """The width at which a straightforward implementation gathers: the baseline for saved work."""
        return self.out_columns if self.transforms_first_by_default else self.in_columns

    @property
    def prepared_columns(self) -> int:
        """The width of ``prepare``'s output for a layer that commutes; it decides the cheaper order."""
        return self.out_columns

    @property
    def edge_norm(self) -> Norm:
        """The weights edges carry: a mean of rows is a sum weighted by one over the in-degree."""
        rows = reduction_of(self).rows
        return self.norm if rows is None or rows.edge_norm is None or self.has_apply_edge else rows.edge_norm
