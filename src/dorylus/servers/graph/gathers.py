"""Gather and its gradient: one class for each reduction, over rows or over messages.

What each keeps, publishes and reads is declared in :mod:`dorylus.saga.reductions`; the arithmetic is the back end's. A
reduction of a user's own brings a subclass of :class:`Gatherer` or :class:`MessageGatherer`.

What ∇SC publishes is all that ∇GA reads of a destination: copied at that moment, so that it is of one epoch even where
the destination has gone on to the next, and sent to the servers that own the sources.

:func:`gather_once` makes the gather of constant input features before the first epoch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dorylus.backends import AttentionSums, Dropout, HostArray, Index, Matrix, NumberFormat, PlacedCsr
from dorylus.graph import Adjacency
from dorylus.saga import Gather
from dorylus.servers.graph.access_sets import kept_names
from dorylus.servers.graph.input_rows import InputRows
from dorylus.servers.graph.pass_context import PassContext


class Part(NamedTuple):
    """One published matrix; ``narrow``: it may be stored and sent in bfloat16."""

    what: str
    columns: int
    narrow: bool


class _GatherBase:
    """What all gathers share: the stage, the pass, the edges, and what they keep for the gradient.

    ``placed`` are the edges where the back end reads them.
    """

    def __init__(self, stage: Gather, context: PassContext) -> None:
        self.stage, self.context, self.backend = stage, context, context.backend
        self.edges: Adjacency = context.shard.adjacency(stage.layer.edge_norm, stage.layer.self_loops)
        self.placed = self.place(self.edges)
        self._kept = {matrix.name: matrix for matrix in stage.spec.kept}

    def rows(self, interval: int) -> tuple[int, int]:
        """The first gathered row of an interval, and the first behind its last."""
        return self.context.layout.rows(self.stage.output.level, interval)

    def place(self, edges: Adjacency) -> PlacedCsr:
        """Weighted edges where the back end reads them."""
        return self.backend.place_csr(edges.indptr, edges.indices, edges.values, edges.row_scale, edges.col_scale)

    def kept(self, name: str) -> Matrix:
        """A matrix that is kept for the gradient, one row per own vertex."""
        return self.context.extra(self.stage.output, name, self.stage.columns_of(self._kept[name]))


class Gatherer(_GatherBase):
    """A gather over rows of vertices. Each call works on the rows of one interval.

    ``back`` holds the same edges from their sources, ``placed_back`` where the back end reads them.
    """

    def __init__(self, stage: Gather, context: PassContext) -> None:
        super().__init__(stage, context)
        layer, output = stage.layer, stage.output
        # The edges from their sources, those alone that end in a needed row; evaluation has no use for them.
        self.back, self.placed_back = self.edges, self.placed
        if context.training and output.needs_grad:
            self.back = context.shard.transpose(layer.edge_norm, layer.self_loops, output.level)
            self.placed_back = self.placed if self.back is self.edges else self.place(self.back)
        self.parts = tuple(Part(each.name, stage.columns_of(each), each.narrow) for each in stage.spec.published)

    def published(self) -> list[Matrix]:
        """The published matrices, in the declared order."""
        output = self.stage.output
        return [self.context.published(output, what, columns, narrow=narrow) for what, columns, narrow in self.parts]

    def forward(self, interval: int, epoch: int) -> None:
        """GA: rows of the sources -> gathered rows."""
        raise NotImplementedError

    def grad_scatter(self, interval: int, cotangent: Matrix) -> None:
        """∇SC: the gathered rows' cotangent -> the published matrices; the first of them is the cotangent itself."""
        self.context.store(cotangent, self.published()[0], *self.rows(interval))

    def grad_gather(self, interval: int, epoch: int, accumulate: bool) -> None:
        """∇GA: the published matrices -> cotangents of the interval's own source rows.

        ``accumulate``: add to the cotangents that a dense task wrote there before.
        """
        raise NotImplementedError


class SumGather(Gatherer):
    """Weighted sum or mean: g_v = Σ_u w_uv x_u; its gradient is the same product with the edges turned round."""

    def forward(self, interval: int, epoch: int) -> None:
        """GA."""
        x, out = self.context.values(self.stage.inputs[0]), self.context.values(self.stage.output)
        self.backend.gather(self.placed, x, out, *self.rows(interval))

    def grad_gather(self, interval: int, epoch: int, accumulate: bool) -> None:
        """∇GA."""
        source = self.stage.inputs[0]
        begin, end = self.context.layout.rows(source.level, interval)
        dx = self.context.cotangent(source)
        (dout,) = self.published()
        self.backend.gather(self.placed_back, dout, dx, begin, end, accumulate=accumulate)


class MaxGather(Gatherer):
    """Column-wise maximum; ties share the gradient evenly."""

    def forward(self, interval: int, epoch: int) -> None:
        """GA."""
        x, out = self.context.values(self.stage.inputs[0]), self.context.values(self.stage.output)
        self.backend.gather_max(self.placed, x, out, self.kept("ties"), *self.rows(interval))

    def grad_scatter(self, interval: int, cotangent: Matrix) -> None:
        """∇SC: each of several equal maxima gets its share."""
        begin, end = self.rows(interval)
        share, out = self.published()
        self.backend.divide(cotangent, self.kept("ties")[begin:end], share[begin:end])
        self.backend.store(self.context.values(self.stage.output)[begin:end], out[begin:end])

    def grad_gather(self, interval: int, epoch: int, accumulate: bool) -> None:
        """∇GA."""
        source = self.stage.inputs[0]
        begin, end = self.context.layout.rows(source.level, interval)
        dx = self.context.cotangent(source)
        x = self.context.values(source)
        share, out = self.published()
        self.backend.gather_max_grad(self.placed_back, x, out, share, dx, begin, end, accumulate=accumulate)


class AttentionGather(Gatherer):
    """Scores, softmax and weighted sum in one kernel; inputs are rows, source scores and destination scores."""

    def __init__(self, stage: Gather, context: PassContext) -> None:
        super().__init__(stage, context)
        layer: Any = stage.layer
        self.shape: dict[str, Any] = {"heads": layer.heads, "slope": layer.slope}
        self._dropout: float = layer.attention_dropout
        self._out_ids = self.backend.place(context.shard.out_ids(stage.output.level))

    def forward(self, interval: int, epoch: int) -> None:
        """GA."""
        z, s_src, s_dst = (self.context.values(slot) for slot in self.stage.inputs)
        out = self.context.values(self.stage.output)
        begin, end = self.rows(interval)
        kept = AttentionSums(*map(self.kept, ("lse", "out_pos", "a_pos"))) if self.context.training else None
        drop = self._drop(epoch, self.context.ids)
        self.backend.attention(self.placed, z, s_src, s_dst, out, begin, end, **self.shape, kept=kept, **drop)

    def grad_scatter(self, interval: int, cotangent: Matrix) -> None:
        """∇SC: also what the softmax's gradient needs of each destination, and the destination scores' cotangent."""
        super().grad_scatter(interval, cotangent)
        score = self.stage.inputs[2]
        begin, end = self.rows(interval)
        out, a_pos, out_pos = self.context.values(self.stage.output), self.kept("a_pos"), self.kept("out_pos")
        dout, delta, lse, s_dst = self.published()
        ds_dst = self.context.cotangent(score)
        self.backend.attention_grad_destination(out, out_pos, a_pos, dout, delta, ds_dst, begin, end, **self.shape)
        self.backend.clear(ds_dst[end : self.context.layout.rows(score.level, interval)[1]])
        self.backend.store(self.kept("lse")[begin:end], lse[begin:end])
        self.backend.store(self.context.values(score)[begin:end], s_dst[begin:end])

    def grad_gather(self, interval: int, epoch: int, accumulate: bool) -> None:
        """∇GA."""
        row, source, _ = self.stage.inputs
        begin, end = self.context.layout.rows(row.level, interval)
        dz = self.context.cotangent(row)
        z, s_src = self.context.values(row), self.context.values(source)
        dout, delta, lse, s_dst = self.published()
        ds_src = self.context.cotangent(source)
        if accumulate:
            self.backend.clear(ds_src[begin:end])
        self.backend.attention_grad_source(
            self.placed_back, z, s_src, s_dst, lse, delta, dout, dz, ds_src, begin, end,
            **self.shape, **self._drop(epoch, self._out_ids), accumulate=accumulate,
        )  # fmt: skip

    def _drop(self, epoch: int, ids: Index) -> dict[str, Any]:
        if not self.context.training or self._dropout == 0:
            return {}
        return {"drop": Dropout(self._dropout, self.context.seed, epoch, self.stage.output.layer), "ids": ids}


class MessageGatherer(_GatherBase):
    """A gather over the messages of an ApplyEdge. Each call works on the in-edges of one interval's rows.

    ``messages`` are what ApplyEdge returned for them; cotangents are full matrices with the interval's rows filled.
    """

    def forward(self, interval: int, messages: tuple[Matrix, ...]) -> None:
        """GA: messages -> gathered rows."""
        raise NotImplementedError

    def grad_gather(self, interval: int, messages: tuple[Matrix, ...], cotangent: Matrix) -> tuple[Matrix, ...]:
        """∇GA: the gathered rows' cotangent -> that of every message. ``messages`` is empty unless they are kept."""
        raise NotImplementedError

    def _new_grad(self, interval: int) -> Matrix:
        assert self.stage.over is not None
        begin, end = self.rows(interval)
        num_edges = int(self.edges.indptr[end]) - int(self.edges.indptr[begin])
        return self.backend.allocate(num_edges, self.stage.over.columns[0])


class SumMessages(MessageGatherer):
    """Σ of the messages."""

    def forward(self, interval: int, messages: tuple[Matrix, ...]) -> None:
        """GA."""
        begin, end = self.rows(interval)
        out = self.context.values(self.stage.output)
        self.backend.segment_sum(self.placed, messages[0], out, begin, end, row_scale=self.row_scale())

    def grad_gather(self, interval: int, messages: tuple[Matrix, ...], cotangent: Matrix) -> tuple[Matrix, ...]:
        """∇GA."""
        begin, end = self.rows(interval)
        d_message = self._new_grad(interval)
        self.backend.segment_sum_grad(self.placed, cotangent, d_message, begin, end, row_scale=self.row_scale())
        return (d_message,)

    def row_scale(self) -> HostArray | None:
        """The factor of each row's sum; None for 1."""
        return None


class MeanMessages(SumMessages):
    """Mean of the messages."""

    def row_scale(self) -> HostArray:
        """One over the number of in-edges."""
        degrees = np.diff(self.edges.indptr)
        scale: HostArray = (1.0 / np.maximum(degrees, 1)).astype(np.float32)
        return scale


class MaxMessages(MessageGatherer):
    """Column-wise maximum of the messages; ties share the gradient evenly."""

    def forward(self, interval: int, messages: tuple[Matrix, ...]) -> None:
        """GA."""
        begin, end = self.rows(interval)
        out = self.context.values(self.stage.output)
        self.backend.segment_max(self.placed, messages[0], out, self.kept("ties"), begin, end)

    def grad_gather(self, interval: int, messages: tuple[Matrix, ...], cotangent: Matrix) -> tuple[Matrix, ...]:
        """∇GA."""
        begin, end = self.rows(interval)
        d_message = self._new_grad(interval)
        out, ties = self.context.values(self.stage.output), self.kept("ties")
        self.backend.divide(cotangent[begin:end], ties[begin:end], cotangent[begin:end])
        self.backend.segment_max_grad(self.placed, messages[0], out, cotangent, d_message, begin, end)
        return (d_message,)


class SoftmaxMessages(MessageGatherer):
    """Σ of the messages, each weighted by the softmax of its score over the vertex's in-edges, head by head."""

    def forward(self, interval: int, messages: tuple[Matrix, ...]) -> None:
        """GA."""
        message, score = messages
        begin, end = self.rows(interval)
        out, lse = self.context.values(self.stage.output), self.kept("lse")
        self.backend.segment_softmax(self.placed, score, message, out, lse, begin, end, heads=self.stage.layer.heads)

    def grad_gather(self, interval: int, messages: tuple[Matrix, ...], cotangent: Matrix) -> tuple[Matrix, ...]:
        """∇GA."""
        message, score = messages
        begin, end = self.rows(interval)
        d_message, d_score = self._new_grad(interval), self.backend.allocate(len(score), score.shape[1])
        out, lse = self.context.values(self.stage.output), self.kept("lse")
        self.backend.segment_softmax_grad(
            self.placed, score, message, out, lse, cotangent, d_score, d_message, begin, end,
            heads=self.stage.layer.heads,
        )  # fmt: skip
        return d_message, d_score


_GATHERERS: dict[str, Any] = {
    each.__name__: each
    for each in (SumGather, MaxGather, AttentionGather, SumMessages, MeanMessages, MaxMessages, SoftmaxMessages)
}


def row_gatherer(stage: Gather, context: PassContext) -> Gatherer:
    """The gatherer of a stage over rows."""
    made = _made(stage, context)
    assert isinstance(made, Gatherer)
    return made


def message_gatherer(stage: Gather, context: PassContext) -> MessageGatherer:
    """The gatherer of a stage over messages."""
    made = _made(stage, context)
    assert isinstance(made, MessageGatherer)
    return made


def _made(stage: Gather, context: PassContext) -> Any:
    gatherer = stage.spec.gatherer
    return (_GATHERERS[gatherer] if isinstance(gatherer, str) else gatherer)(stage, context)


EachInterval = Callable[[int, Callable[[int], None]], None]
ROUNDED_AT_ONCE = 1024  # rows


def gather_once(
    stage: Gather, gather: Gatherer, context: PassContext, features: InputRows, each_interval: EachInterval
) -> Matrix:
    """All rows of the gather. ``each_interval(n, work)`` runs ``work`` for n intervals."""

    def gathered(columns: slice | None) -> Matrix:
        context.matrices.put(stage.inputs[0], features.with_ghosts(keep=False, columns=columns))
        if columns is not None:
            width = columns.stop - columns.start
            context.matrices.put(stage.output, context.backend.allocate(context.num_rows, width))
        each_interval(context.layout.num_intervals, lambda interval: gather.forward(interval, 0))
        context.matrices.release([stage.inputs[0], *kept_names(stage)])
        return context.values(stage.output)

    blocks = _blocks(stage, context, features)
    if len(blocks) == 1:
        return _rounded(gathered(None), context)
    out = context.backend.allocate(context.num_rows, stage.output.columns)
    for columns in blocks:
        context.backend.store(gathered(columns), out[:, columns])
    context.matrices.put(stage.output, _rounded(out, context))
    return out


def _rounded(rows: Matrix, context: PassContext) -> Matrix:
    """The rows as they are under a memory limit, where they are stored in the gathered format; rounded in place."""
    if context.gathered_format is NumberFormat.BF16:
        backend = context.backend
        narrow = backend.allocate(min(len(rows), ROUNDED_AT_ONCE), rows.shape[1], NumberFormat.BF16)
        for begin in range(0, len(rows), ROUNDED_AT_ONCE):
            block = rows[begin : begin + ROUNDED_AT_ONCE]
            backend.store(block, narrow[: len(block)])
            backend.store(narrow[: len(block)], block)
    return rows


def _blocks(stage: Gather, context: PassContext, features: InputRows) -> list[slice]:
    """Blocks of columns, at most (own rows + ghosts) / own rows of them."""
    most = 1
    if features.has_columns and context.num_rows > 0:
        most = round((context.num_rows + context.ghosts.num_rows) / context.num_rows)
    return stage.spec.blocks_made_once(stage.output.columns, most)
