"""Stages: what a program is lowered to. Slots are its matrices; stages read some slots and write others.

A slot is a matrix with one row per vertex. Its ``level`` determines which rows are ever needed: level l are the rows
that layer l reads, level L (the number of layers) those the loss reads; a deeper level is a subset of a shallower one.
"""

import threading
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

from torch import Tensor, nn

from dorylus.saga.layer import Layer, Rows
from dorylus.saga.reductions import GatherSpec, RowMatrix, reduction_of


@dataclass(frozen=True, eq=False)
class Slot:
    """A matrix with one row per vertex, written by one stage and read by others.

    ``gathered``: other intervals read it, so a scatter publishes it. ``exact``: it keeps float32 also where gathered
    rows may be stored in less (scores that enter an exponential, rows of a gather that reads float32 only).
    ``dropout`` is applied when it is stored.
    ``source``: ``"features"`` (the graph's), ``"static"`` (gathered once before training) or ``"computed"``.
    ``first_column``: its first column in the whole matrix, where it is a block of columns.
    """

    name: str
    columns: int
    level: int
    layer: int
    dropout: float = 0.0
    gathered: bool = False
    exact: bool = False
    needs_grad: bool = True
    source: str = "computed"
    first_column: int = 0


class Body:
    """A dense body: a pure function of weights and rows. Weights are named as in the program's ``state_dict``.

    ``label`` names what it runs in the user's terms, for errors.
    """

    def __init__(self, module: nn.Module, label: str = "a body") -> None:
        self.module, self.label = module, label
        self.weight_names = tuple(name for name, _ in module.named_parameters())
        self._own = threading.local()

    def __reduce__(self) -> tuple[type["Body"], tuple[nn.Module, str]]:
        return Body, (self.module, self.label)  # the threads' own copies are not pickled

    def __call__(self, weights: Mapping[str, Tensor], inputs: tuple[Rows, ...]) -> tuple[Tensor, ...]:
        """The body's outputs, always as a tuple."""
        # Weights are put into the module for the time of the call, so every thread needs a copy of its own.
        if not hasattr(self._own, "copy"):
            self._own.copy = _Skeleton(self.module)
        outputs = self._own.copy(weights, inputs)
        return outputs if isinstance(outputs, tuple) else (outputs,)


class _Skeleton:
    """A copy of a module that receives its parameters with every call.

    What ``torch.func.functional_call`` does, minus finding the parameters each time: for small graphs that search
    took longer than the arithmetic.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = deepcopy(module)
        names = {id(parameter): name for name, parameter in self.module.named_parameters()}
        self.places = [
            (part._parameters, attribute, names[id(parameter)])
            for part in self.module.modules()
            for attribute, parameter in part._parameters.items()
            if parameter is not None
        ]

    def __call__(self, weights: Mapping[str, Tensor], inputs: tuple[Rows, ...]) -> object:
        for parameters, attribute, name in self.places:
            parameters[attribute] = weights[name]  # type: ignore[assignment]
        return self.module(*inputs)


@dataclass(frozen=True, eq=False)
class ApplyVertex:
    """AV: dense, row by row, on the pool."""

    body: Body
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    level: int


@dataclass(frozen=True, eq=False)
class Loss:
    """The last AV, the loss and ∇AV in one task."""

    body: Body
    inputs: tuple[Slot, ...]
    level: int


@dataclass(frozen=True, eq=False)
class Scatter:
    """SC: an interval's rows become visible to the intervals that gather them."""

    slots: tuple[Slot, ...]


@dataclass(frozen=True, eq=False)
class ApplyEdge:
    """AE: dense, edge by edge, on the pool. ``source`` and ``destination`` may be the same slot."""

    body: Body
    layer: Layer
    source: Slot
    destination: Slot
    columns: tuple[int, ...]
    level: int


@dataclass(frozen=True, eq=False)
class Gather:
    """GA: the rows, or the messages of ``over``, on a vertex's in-edges become one row.

    ``after``: the gather of the previous block of columns, which all intervals finish first.
    """

    layer: Layer
    inputs: tuple[Slot, ...]
    output: Slot
    over: ApplyEdge | None = None
    after: "Gather | None" = None

    @property
    def spec(self) -> GatherSpec:
        """What its reduction declares."""
        reduction = reduction_of(self.layer)
        spec = reduction.rows if self.over is None else reduction.messages
        assert spec is not None  # Program checks it
        return spec

    def columns_of(self, matrix: RowMatrix) -> int:
        """The columns of a matrix that it keeps or publishes."""
        return matrix.num_columns(self.layer, self.output.columns)


Stage = ApplyVertex | Loss | Scatter | ApplyEdge | Gather
