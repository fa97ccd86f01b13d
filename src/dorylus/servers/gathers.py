"""Gather and its gradient, one class for each way in-edges are combined. All work is in :mod:`dorylus.kernels`.

Each class answers the same calls, for the rows of one interval:

    forward          GA    rows of the sources -> gathered rows
    grad_scatter     ∇SC   the gathered rows' cotangent becomes visible to the sources' intervals
    grad_gather      ∇GA   those cotangents -> cotangents of the interval's own source rows
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dorylus import kernels
from dorylus.graph import Adjacency
from dorylus.kernels import Dropout
from dorylus.partition import Layout, Shard
from dorylus.saga.gat import GAT
from dorylus.saga.stages import Gather, Slot
from dorylus.servers.matrices import Matrices

Matrix = NDArray[Any]


@dataclass(frozen=True)
class Grad:
    """The name under which a slot's cotangent is held."""

    slot: Slot


@dataclass(frozen=True)
class Extra:
    """The name of a matrix a gather keeps for its own gradient."""

    slot: Slot
    what: str


@dataclass(frozen=True, eq=False)
class Bench:
    """What gathers work on: the shard, the matrices of this pass, and how gathered values are stored."""

    shard: Shard
    layout: Layout
    matrices: Matrices
    training: bool
    seed: int
    gathered_dtype: np.dtype[Any]

    def values(self, slot: Slot) -> Matrix:
        """The matrix of a slot."""
        narrow = slot.gathered and not slot.exact
        return self.matrices.get(slot, slot.columns, self.gathered_dtype if narrow else np.float32)

    def cotangent(self, slot: Slot, *, zero: bool = False) -> Matrix:
        """The matrix of a slot's cotangent, always float32."""
        return self.matrices.get(Grad(slot), slot.columns, zero=zero)

    def published(self, slot: Slot) -> Matrix:
        """The matrix of a gathered row's cotangent as other intervals read it."""
        return self.matrices.get(Grad(slot), slot.columns, self.gathered_dtype)

    def store(self, source: Matrix, target: Matrix, begin: int, end: int) -> None:
        """Write rows into a matrix, in its precision."""
        if target.dtype == np.uint16:
            kernels.to_bf16(source, target[begin:end], 0, end - begin)
        else:
            target[begin:end] = source


class Gatherer(Protocol):
    """One gather of the program on this server."""

    def forward(self, interval: int, epoch: int) -> None:
        """GA."""

    def grad_scatter(self, interval: int, cotangent: Matrix) -> None:
        """∇SC."""

    def grad_gather(self, interval: int, epoch: int, own: Matrix | None) -> None:
        """∇GA; ``own`` are the cotangents the interval's rows already have from elsewhere."""


class _Rows:
    """What gathers over rows share: their edges, and where the cotangent of the input goes."""

    def __init__(self, stage: Gather, bench: Bench) -> None:
        self.stage, self.bench = stage, bench
        self.edges: Adjacency = bench.shard.adjacency(stage.layer.edge_norm, stage.layer.self_loops)
        layer, output = stage.layer, stage.output
        # The edges from their sources, those alone that end in a needed row; evaluation has no use for them.
        self.back = self.edges
        if bench.training and output.needs_grad:
            self.back = bench.shard.transpose(layer.edge_norm, layer.self_loops, output.level)

    def grad_scatter(self, interval: int, cotangent: Matrix) -> None:
        """Write the interval's cotangents where ∇GA of other intervals reads them."""
        rows = self.bench.layout.rows(self.stage.output.level, interval)
        self.bench.store(cotangent, self.bench.published(self.stage.output), *rows)

    def into(self, slot: Slot, interval: int, own: Matrix | None) -> tuple[Matrix, int, int, bool]:
        """The cotangent matrix of a source slot, the rows to fill, and whether they already hold their own part."""
        begin, end = self.bench.layout.rows(slot.level, interval)
        target = self.bench.cotangent(slot)
        if own is not None:
            target[begin : begin + len(own)] = own
            target[begin + len(own) : end] = 0
        return target, begin, end, own is not None


class SumGather(_Rows):
    """Weighted sum or mean: g_v = Σ_u w_uv x_u; its gradient is the same product with the edges turned round."""

    def forward(self, interval: int, epoch: int) -> None:
        """GA."""
        edges, source, output = self.edges, self.stage.inputs[0], self.stage.output
        begin, end = self.bench.layout.rows(output.level, interval)
        x, out = self.bench.values(source), self.bench.values(output)
        kernels.spmm(edges.indptr, edges.indices, x, out, begin, end, **_weights(edges))

    def grad_gather(self, interval: int, epoch: int, own: Matrix | None) -> None:
        """∇GA."""
        back = self.back
        dx, begin, end, accumulate = self.into(self.stage.inputs[0], interval, own)
        dout = self.bench.published(self.stage.output)
        weights = _weights(back)
        kernels.spmm(back.indptr, back.indices, dout, dx, begin, end, accumulate=accumulate, **weights)


def _weights(edges: Adjacency) -> dict[str, Any]:
    return {"values": edges.values, "row_scale": edges.row_scale, "col_scale": edges.col_scale}


class MaxGather(_Rows):
    """Column-wise maximum; ties share the gradient evenly."""

    def forward(self, interval: int, epoch: int) -> None:
        """GA."""
        output = self.stage.output
        begin, end = self.bench.layout.rows(output.level, interval)
        x, out = self.bench.values(self.stage.inputs[0]), self.bench.values(output)
        kernels.spmm_max(self.edges.indptr, self.edges.indices, x, out, self._ties(), begin, end)

    def grad_scatter(self, interval: int, cotangent: Matrix) -> None:
        """∇SC: each of several equal maxima gets its share."""
        begin, end = self.bench.layout.rows(self.stage.output.level, interval)
        np.divide(cotangent, self._ties()[begin:end], out=self.bench.cotangent(self.stage.output)[begin:end])

    def grad_gather(self, interval: int, epoch: int, own: Matrix | None) -> None:
        """∇GA."""
        back, output = self.back, self.stage.output
        dx, begin, end, accumulate = self.into(self.stage.inputs[0], interval, own)
        x, out = self.bench.values(self.stage.inputs[0]), self.bench.values(output)
        shares = self.bench.cotangent(output)
        kernels.spmm_max_grad(back.indptr, back.indices, x, out, shares, dx, begin, end, accumulate=accumulate)

    def _ties(self) -> Matrix:
        output = self.stage.output
        return self.bench.matrices.get(Extra(output, "ties"), output.columns)


class AttentionGather(_Rows):
    """Scores, softmax and weighted sum in one kernel; inputs are rows, source scores and destination scores."""

    def __init__(self, stage: Gather, bench: Bench) -> None:
        super().__init__(stage, bench)
        assert isinstance(stage.layer, GAT)
        self.layer = stage.layer
        self.shape: dict[str, Any] = {"heads": self.layer.heads, "slope": self.layer.slope}

    def forward(self, interval: int, epoch: int) -> None:
        """GA."""
        z, s_src, s_dst = (self.bench.values(slot) for slot in self.stage.inputs)
        out = self.bench.values(self.stage.output)
        begin, end = self.bench.layout.rows(self.stage.output.level, interval)
        kept: dict[str, Any] = {}
        if self.bench.training:
            columns = self.stage.output.columns
            kept = {
                "lse": self._heads("lse"),
                "a_pos": self._heads("a_pos"),
                "out_pos": self._extra("out_pos", columns),
            }
        edges, drop = self.edges, self._drop(epoch)
        kernels.attention(edges.indptr, edges.indices, z, s_src, s_dst, out, begin, end, **self.shape, **kept, **drop)

    def grad_scatter(self, interval: int, cotangent: Matrix) -> None:
        """∇SC: also what the softmax's gradient needs of each destination, and the destination scores' cotangent."""
        super().grad_scatter(interval, cotangent)
        output, score = self.stage.output, self.stage.inputs[2]
        begin, end = self.bench.layout.rows(output.level, interval)
        out, a_pos, out_pos = self.bench.values(output), self._heads("a_pos"), self._extra("out_pos", output.columns)
        dout, delta, ds_dst = self.bench.published(output), self._heads("delta"), self.bench.cotangent(score)
        kernels.attention_grad_dst(out, out_pos, a_pos, dout, delta, ds_dst, begin, end, **self.shape)
        ds_dst[end : self.bench.layout.rows(score.level, interval)[1]] = 0

    def grad_gather(self, interval: int, epoch: int, own: Matrix | None) -> None:
        """∇GA."""
        row, source, _ = self.stage.inputs
        dz, begin, end, accumulate = self.into(row, interval, own)
        z, s_src, s_dst = (self.bench.values(slot) for slot in self.stage.inputs)
        lse, delta, dout = self._heads("lse"), self._heads("delta"), self.bench.published(self.stage.output)
        ds_src = self.bench.cotangent(source)
        if accumulate:
            ds_src[begin:end] = 0
        kernels.attention_grad_src(
            self.back.indptr, self.back.indices, z, s_src, s_dst, lse, delta, dout, dz, ds_src, begin, end,
            **self.shape, **self._drop(epoch), accumulate=accumulate,
        )  # fmt: skip

    def _drop(self, epoch: int) -> dict[str, Any]:
        p = self.layer.attention_dropout
        if not self.bench.training or p == 0:
            return {}
        return {"drop": Dropout(p, self.bench.seed, epoch, self.stage.output.layer), "ids": self.bench.shard.ids}

    def _heads(self, what: str) -> Matrix:
        return self._extra(what, self.layer.heads)

    def _extra(self, what: str, columns: int) -> Matrix:
        return self.bench.matrices.get(Extra(self.stage.output, what), columns)


def row_gatherer(stage: Gather, bench: Bench) -> Gatherer:
    """The gatherer for a stage that reads rows."""
    kinds: dict[str, type[Any]] = {"sum": SumGather, "mean": SumGather, "max": MaxGather, "attention": AttentionGather}
    made: Gatherer = kinds[stage.layer.reduce](stage, bench)
    return made
