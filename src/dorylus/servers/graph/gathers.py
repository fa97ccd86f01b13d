"""Gather and its gradient, one class for each way in-edges are combined. The back end does all work.

Each class answers the same calls, for the rows of one interval:

    forward          GA    rows of the sources -> gathered rows
    grad_scatter     ∇SC   the gathered rows' cotangent becomes visible to the sources' intervals
    grad_gather      ∇GA   those cotangents -> cotangents of the interval's own source rows

What ∇SC makes visible is all that ∇GA reads of a destination: copied at that moment, so that it is of one epoch also
where the destination has gone on to the next, and sent to the servers whose vertices it was gathered from.
"""

from typing import Any, NamedTuple, Protocol

from dorylus.backends import AttentionSums, Dropout, Index, Matrix, PlacedCsr
from dorylus.graph import Adjacency
from dorylus.saga import GAT, Gather
from dorylus.servers.graph.pass_context import PassContext


class Part(NamedTuple):
    """One matrix that ∇SC makes visible; ``narrow``: it may be stored and sent in less than float32."""

    what: str
    columns: int
    narrow: bool


class Gatherer(Protocol):
    """One gather of the program on this server."""

    parts: tuple[Part, ...]
    edges: Adjacency
    back: Adjacency  # the same edges from their sources

    def forward(self, interval: int, epoch: int) -> None:
        """GA."""

    def grad_scatter(self, interval: int, cotangent: Matrix) -> None:
        """∇SC."""

    def grad_gather(self, interval: int, epoch: int, accumulate: bool) -> None:
        """∇GA; ``accumulate``: on top of the cotangents that the interval's rows already have from elsewhere."""

    def published(self) -> list[Matrix]:
        """What ∇SC made visible, in the order of ``parts``."""


class _Rows:
    """What gathers over rows share: their edges, what their gradient publishes, where the input's cotangent goes."""

    parts: tuple[Part, ...]

    def __init__(self, stage: Gather, bench: PassContext) -> None:
        self.stage, self.bench = stage, bench
        self.edges: Adjacency = bench.shard.adjacency(stage.layer.edge_norm, stage.layer.self_loops)
        layer, output = stage.layer, stage.output
        # The edges from their sources, those alone that end in a needed row; evaluation has no use for them.
        self.back = self.edges
        if bench.training and output.needs_grad:
            self.back = bench.shard.transpose(layer.edge_norm, layer.self_loops, output.level)
        self._placed, self._placed_back = _place(bench, self.edges), _place(bench, self.back)
        self.parts = (Part("cotangent", output.columns, True),)

    def published(self) -> list[Matrix]:
        """What ∇SC made visible."""
        output = self.stage.output
        return [self.bench.published(output, what, columns, narrow=narrow) for what, columns, narrow in self.parts]

    def grad_scatter(self, interval: int, cotangent: Matrix) -> None:
        """Write the interval's cotangents where ∇GA of other intervals reads them."""
        rows = self.bench.layout.rows(self.stage.output.level, interval)
        self.bench.store(cotangent, self.published()[0], *rows)


class SumGather(_Rows):
    """Weighted sum or mean: g_v = Σ_u w_uv x_u; its gradient is the same product with the edges turned round."""

    def forward(self, interval: int, epoch: int) -> None:
        """GA."""
        source, output = self.stage.inputs[0], self.stage.output
        begin, end = self.bench.layout.rows(output.level, interval)
        x, out = self.bench.values(source), self.bench.values(output)
        self.bench.backend.gather(self._placed, x, out, begin, end)

    def grad_gather(self, interval: int, epoch: int, accumulate: bool) -> None:
        """∇GA."""
        source = self.stage.inputs[0]
        begin, end = self.bench.layout.rows(source.level, interval)
        dx = self.bench.cotangent(source)
        (dout,) = self.published()
        self.bench.backend.gather(self._placed_back, dout, dx, begin, end, accumulate=accumulate)


def _place(bench: PassContext, edges: Adjacency) -> PlacedCsr:
    return bench.backend.place_csr(edges.indptr, edges.indices, edges.values, edges.row_scale, edges.col_scale)


class MaxGather(_Rows):
    """Column-wise maximum; ties share the gradient evenly."""

    def __init__(self, stage: Gather, bench: PassContext) -> None:
        super().__init__(stage, bench)
        columns = stage.output.columns
        self.parts = (Part("share", columns, False), Part("out", columns, False))

    def forward(self, interval: int, epoch: int) -> None:
        """GA."""
        output = self.stage.output
        begin, end = self.bench.layout.rows(output.level, interval)
        x, out = self.bench.values(self.stage.inputs[0]), self.bench.values(output)
        self.bench.backend.gather_max(self._placed, x, out, self._ties(), begin, end)

    def grad_scatter(self, interval: int, cotangent: Matrix) -> None:
        """∇SC: each of several equal maxima gets its share."""
        begin, end = self.bench.layout.rows(self.stage.output.level, interval)
        share, out = self.published()
        self.bench.backend.divide(cotangent, self._ties()[begin:end], share[begin:end])
        self.bench.backend.store(self.bench.values(self.stage.output)[begin:end], out[begin:end])

    def grad_gather(self, interval: int, epoch: int, accumulate: bool) -> None:
        """∇GA."""
        source = self.stage.inputs[0]
        begin, end = self.bench.layout.rows(source.level, interval)
        dx = self.bench.cotangent(source)
        x = self.bench.values(source)
        share, out = self.published()
        self.bench.backend.gather_max_grad(self._placed_back, x, out, share, dx, begin, end, accumulate=accumulate)

    def _ties(self) -> Matrix:
        return self.bench.extra(self.stage.output, "ties", self.stage.output.columns)


class AttentionGather(_Rows):
    """Scores, softmax and weighted sum in one kernel; inputs are rows, source scores and destination scores."""

    def __init__(self, stage: Gather, bench: PassContext) -> None:
        super().__init__(stage, bench)
        assert isinstance(stage.layer, GAT)
        self.layer = stage.layer
        self.shape: dict[str, Any] = {"heads": self.layer.heads, "slope": self.layer.slope}
        per_head = [Part(what, self.layer.heads, False) for what in ("delta", "lse", "s_dst")]
        self.parts = (*self.parts, *per_head)
        self._out_ids = bench.backend.place(bench.shard.out_ids(stage.output.level))

    def forward(self, interval: int, epoch: int) -> None:
        """GA."""
        z, s_src, s_dst = (self.bench.values(slot) for slot in self.stage.inputs)
        out = self.bench.values(self.stage.output)
        begin, end = self.bench.layout.rows(self.stage.output.level, interval)
        kept = None
        if self.bench.training:
            out_pos = self._extra("out_pos", self.stage.output.columns)
            kept = AttentionSums(self._heads("lse"), out_pos, self._heads("a_pos"))
        drop = self._drop(epoch, self.bench.ids)
        self.bench.backend.attention(self._placed, z, s_src, s_dst, out, begin, end, **self.shape, kept=kept, **drop)

    def grad_scatter(self, interval: int, cotangent: Matrix) -> None:
        """∇SC: also what the softmax's gradient needs of each destination, and the destination scores' cotangent."""
        super().grad_scatter(interval, cotangent)
        output, score = self.stage.output, self.stage.inputs[2]
        begin, end = self.bench.layout.rows(output.level, interval)
        out, a_pos, out_pos = self.bench.values(output), self._heads("a_pos"), self._extra("out_pos", output.columns)
        dout, delta, lse, s_dst = self.published()
        ds_dst = self.bench.cotangent(score)
        backend = self.bench.backend
        backend.attention_grad_destination(out, out_pos, a_pos, dout, delta, ds_dst, begin, end, **self.shape)
        backend.clear(ds_dst[end : self.bench.layout.rows(score.level, interval)[1]])
        backend.store(self._heads("lse")[begin:end], lse[begin:end])
        backend.store(self.bench.values(score)[begin:end], s_dst[begin:end])

    def grad_gather(self, interval: int, epoch: int, accumulate: bool) -> None:
        """∇GA."""
        row, source, _ = self.stage.inputs
        begin, end = self.bench.layout.rows(row.level, interval)
        dz = self.bench.cotangent(row)
        z, s_src = self.bench.values(row), self.bench.values(source)
        dout, delta, lse, s_dst = self.published()
        ds_src = self.bench.cotangent(source)
        if accumulate:
            self.bench.backend.clear(ds_src[begin:end])
        self.bench.backend.attention_grad_source(
            self._placed_back, z, s_src, s_dst, lse, delta, dout, dz, ds_src, begin, end,
            **self.shape, **self._drop(epoch, self._out_ids), accumulate=accumulate,
        )  # fmt: skip

    def _drop(self, epoch: int, ids: Index) -> dict[str, Any]:
        p = self.layer.attention_dropout
        if not self.bench.training or p == 0:
            return {}
        return {"drop": Dropout(p, self.bench.seed, epoch, self.stage.output.layer), "ids": ids}

    def _heads(self, what: str) -> Matrix:
        return self._extra(what, self.layer.heads)

    def _extra(self, what: str, columns: int) -> Matrix:
        return self.bench.extra(self.stage.output, what, columns)


def row_gatherer(stage: Gather, bench: PassContext) -> Gatherer:
    """The gatherer for a stage that reads rows."""
    kinds: dict[str, type[Any]] = {"sum": SumGather, "mean": SumGather, "max": MaxGather, "attention": AttentionGather}
    made: Gatherer = kinds[stage.layer.reduce](stage, bench)
    return made
