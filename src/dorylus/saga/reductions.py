"""Reductions: what each kind of gather keeps, publishes and reads, declared once.

A layer names its reduction (``reduce = "max"``), or brings a :class:`Reduction` of its own. The task table, the access
sets and lifetimes of matrices, the ghost exchange, gathers in blocks of columns and the memory model all derive from
the declaration; none of them refers to a reduction by name. The kernels are in :mod:`dorylus.servers.graph.gathers`.

A gather over rows has two gradient tasks. ∇SC runs at the destination: it reads what the gather kept and fills the
published matrices. ∇GA runs at the source: it reads all rows of the published matrices and writes the inputs'
cotangents. A gather over the messages of an ApplyEdge has one, ∇GA at the destination, and publishes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dorylus.graph import Norm

if TYPE_CHECKING:
    from torch import Tensor

    from dorylus.saga.layer import Layer


@dataclass(frozen=True, kw_only=True)
class RowMatrix:
    """A matrix with one row per gathered row, beside the output.

    ``columns``: as many as the output has, one per head of the layer, or a number. ``narrow``: it may be stored and
    sent in bfloat16, if its gatherer reads that; others are always float32. ``evaluation``: it is also written where no
    gradient is computed.
    """

    name: str
    columns: Literal["output", "heads"] | int = "output"
    narrow: bool = False
    evaluation: bool = False

    def num_columns(self, layer: "Layer", output_columns: int) -> int:
        """The columns of a row, for a layer and the width of its output."""
        if self.columns == "output":
            return output_columns
        return layer.heads if self.columns == "heads" else self.columns


@dataclass(frozen=True, kw_only=True)
class GradientTask:
    """What a gradient task accesses of its own interval's rows, by the position of the gather's inputs.

    ``reads``: inputs whose values it reads. ``reads_output``: whether it reads the gathered values. ``writes``: inputs
    whose cotangents it writes.
    """

    reads: tuple[int, ...] = ()
    reads_output: bool = False
    writes: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GatherSpec:
    """One kind of gather: over rows, or over the messages of an ApplyEdge.

    ``gatherer``: the class that runs it, by its name in ``dorylus.servers.graph.gathers`` or as
    ``gatherer(stage, context)``. ``kept``: what GA writes for the gradient at the destination. ``published``: what ∇SC
    writes for ∇GA at the sources. ``edge_norm``: the edges' weights, where the layer does not choose them.

    ``splits_columns``: every column can be gathered apart. ``made_once``: features can be gathered once for all epochs.
    ``keeps_messages``: the gradient reads every message again. ``scores``: messages come with one score per head.
    ``reads_bf16``: the gatherer reads matrices in bfloat16 too, as kernels of the back end do. Else what it reads and
    publishes is stored and sent in float32.

    ``needs_exact_rows``, ``needs_steady_rows``: why the gradient is wrong where rows have changed since they were
    gathered, always or under dropout ("layer 0 ..."); empty where it is not.
    """

    gatherer: str | Callable[..., Any]
    kept: tuple[RowMatrix, ...] = ()
    published: tuple[RowMatrix, ...] = ()
    grad_scatter: GradientTask = GradientTask()
    grad_gather: GradientTask = GradientTask()
    edge_norm: Norm | None = None
    splits_columns: bool = False
    made_once: bool = False
    keeps_messages: bool = False
    scores: bool = False
    reads_bf16: bool = False
    needs_exact_rows: str = ""
    needs_steady_rows: str = ""

    def __post_init__(self) -> None:
        if not self.reads_bf16:
            wide = tuple(replace(matrix, narrow=False) for matrix in self.published)
            object.__setattr__(self, "published", wide)

    def blocks_made_once(self, columns: int, most: int) -> list[slice]:
        """The blocks of columns, at most so many, in which the gather that is made once is made.

        One block where columns cannot be gathered apart, or where it keeps matrices, which are as wide as all columns.
        """
        splits = self.splits_columns and not self.kept
        blocks = max(1, min(most, columns)) if splits else 1
        return [slice(columns * block // blocks, columns * (block + 1) // blocks) for block in range(blocks)]


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """Combines the rows, or the messages, of a vertex's in-edges into one row; None for a kind it cannot combine.

    ``only_for``: the name of the one layer that has what the gatherer needs. ``reference``: the same in plain PyTorch,
    (layer, what ``prepare`` or else ``apply_edge`` returned, edges) -> gathered rows, for
    :mod:`dorylus.saga.reference`, which has its own for the reductions below.
    """

    name: str
    rows: GatherSpec | None = None
    messages: GatherSpec | None = None
    only_for: str | None = None
    reference: "Callable[[Layer, tuple[Tensor, ...], Any], Tensor] | None" = None

    def __str__(self) -> str:
        return self.name


_COTANGENT = RowMatrix(name="cotangent", narrow=True)
_TIES = RowMatrix(name="ties", evaluation=True)  # how many inputs equal the maximum


def _sum_of_rows(edge_norm: Norm | None = None) -> GatherSpec:
    return GatherSpec(
        gatherer="SumGather",
        published=(_COTANGENT,),
        grad_gather=GradientTask(writes=(0,)),
        edge_norm=edge_norm,
        splits_columns=True,
        made_once=True,
        reads_bf16=True,
    )


_MAX_OF_ROWS = GatherSpec(
    gatherer="MaxGather",
    kept=(_TIES,),
    published=(RowMatrix(name="share"), RowMatrix(name="out")),
    grad_scatter=GradientTask(reads_output=True),
    grad_gather=GradientTask(reads=(0,), writes=(0,)),
    splits_columns=True,
    made_once=True,
    reads_bf16=True,
    needs_exact_rows="gathers a maximum, whose gradient goes to the row with the maximum",
)
_ATTENTION = GatherSpec(  # inputs: rows, their scores as sources, their scores as destinations
    gatherer="AttentionGather",
    kept=(
        RowMatrix(name="lse", columns="heads"),
        RowMatrix(name="a_pos", columns="heads"),
        RowMatrix(name="out_pos"),
    ),
    published=(
        _COTANGENT,
        RowMatrix(name="delta", columns="heads"),
        RowMatrix(name="lse", columns="heads"),
        RowMatrix(name="s_dst", columns="heads"),
    ),
    grad_scatter=GradientTask(reads=(2,), reads_output=True, writes=(2,)),
    grad_gather=GradientTask(reads=(0, 1), writes=(0, 1)),
    reads_bf16=True,
    needs_steady_rows="weighs its neighbours by attention",
)
_MAX_OF_MESSAGES = GatherSpec(
    gatherer="MaxMessages", kept=(_TIES,), grad_gather=GradientTask(reads_output=True), keeps_messages=True
)
_SOFTMAX_OF_MESSAGES = GatherSpec(
    gatherer="SoftmaxMessages",
    kept=(RowMatrix(name="lse", columns="heads", evaluation=True),),
    grad_gather=GradientTask(reads_output=True),
    keeps_messages=True,
    scores=True,
)

REDUCTIONS: Mapping[str, Reduction] = {
    each.name: each
    for each in (
        Reduction(name="sum", rows=_sum_of_rows(), messages=GatherSpec(gatherer="SumMessages")),
        Reduction(name="mean", rows=_sum_of_rows("mean"), messages=GatherSpec(gatherer="MeanMessages")),
        Reduction(name="max", rows=_MAX_OF_ROWS, messages=_MAX_OF_MESSAGES),
        Reduction(name="softmax", messages=_SOFTMAX_OF_MESSAGES),
        Reduction(name="attention", rows=_ATTENTION, only_for="GAT"),
    )
}


def reduction_of(layer: "Layer") -> Reduction:
    """The reduction that a layer names or brings."""
    return layer.reduce if isinstance(layer.reduce, Reduction) else REDUCTIONS[layer.reduce]
