"""The graph server: owns a shard's rows and carries out its tasks.

Sparse tasks (GA, SC and their gradients) run here; for dense ones it makes the call and takes the reply. Values
stay in matrices that all intervals share; what passes from one task of an interval to the next waits in ``_pending``.
SC and ∇SC also post the interval's rows to the peers that have ghosts of them, as soon as they are there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dorylus import kernels
from dorylus.kernels import Dropout
from dorylus.paging import PagedArray
from dorylus.partition import Arrangement, PagedArrangement
from dorylus.partition.paged_edges import at_hand
from dorylus.pipeline import Kind, Task
from dorylus.saga.dense import Call, Kept, Mode, Reply, Saved, Targets
from dorylus.saga.layer import Rows
from dorylus.saga.lower import Plan
from dorylus.saga.stages import ApplyEdge, ApplyVertex, Gather, Loss, Scatter, Slot
from dorylus.saga.table import Steps
from dorylus.servers.ages import Ages
from dorylus.servers.bench import Bench
from dorylus.servers.cotangents import Cotangents
from dorylus.servers.edges import EdgeGather
from dorylus.servers.exchange import Parcel
from dorylus.servers.gathers import Gatherer, row_gatherer
from dorylus.servers.ghosts import GhostExchange, Peers
from dorylus.servers.input_rows import InputRows
from dorylus.servers.lifetimes import Lifetimes
from dorylus.servers.matrices import Arena, Matrices
from dorylus.servers.paged_matrices import PagedMatrices
from dorylus.servers.paged_static import gather_once_paged
from dorylus.servers.paging import Paging
from dorylus.servers.residency import Residency, paged_edges_of
from dorylus.servers.static_gather import EachInterval, gather_once
from dorylus.servers.touches import FEATURES, begun_by

Matrix = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class PassSettings:
    """How a pass is made: for training or evaluation, exactly or not, and in which precision.

    ``asynchronous``: values of other epochs are read, so nothing is given back and ages are taken down. ``bf16``: what
    is gathered is stored in it. ``ghost_bf16``: what travels, travels in it.
    """

    training: bool
    seed: int = 0
    bf16: bool = False
    ghost_bf16: bool = False
    keep_graph: bool = True
    asynchronous: bool = False


class GraphServer:
    """One pass (training or evaluation) over one shard."""

    def __init__(
        self,
        shard: Arrangement,
        plan: Plan,
        steps: Steps,
        arena: Arena,
        peers: Peers,
        settings: PassSettings,
        targets: Targets | None = None,
        paging: Paging | None = None,
    ) -> None:
        training = settings.training
        self.mine = shard.mine
        self._plan, self._steps, self._targets = plan, steps, targets
        self._keep_graph = settings.keep_graph and training
        self._asynchronous = settings.asynchronous
        self._layout = shard.layout if training else shard.layout.everything()
        ghosts = (shard.ghosts, shard.out_ghosts)
        ghosts = ghosts if training else (ghosts[0].everything(), ghosts[1].everything())
        dtype: np.dtype[Any] = np.dtype(np.uint16 if settings.bf16 else np.float32)
        matrices = Matrices(arena) if paging is None else paging.matrices(self._layout.bounds, plan)
        self._bench = Bench(shard, self._layout, *ghosts, matrices, training, settings.seed, dtype)
        self._pending: dict[tuple[Slot, int], Matrix] = {}
        self._edge_grads: dict[int, tuple[Tensor, ...]] = {}
        self._kept: dict[tuple[object, int], Kept | Saved] = {}
        self._read: dict[tuple[object, int], tuple[Rows, ...]] = {}
        self._features = InputRows(self._bench, plan)
        self._gathers: dict[Gather, Gatherer] = {}
        self._edges: dict[ApplyEdge, EdgeGather] = {}
        for stage in plan.stages:
            if isinstance(stage, Gather) and stage.over is not None:
                self._edges[stage.over] = EdgeGather(stage, self._bench)
            elif isinstance(stage, Gather):
                self._gathers[stage] = row_gatherer(stage, self._bench)
        sums = {slot: edges for stage, edges in self._edges.items() for slot in (stage.source, stage.destination)}
        self._cotangents = Cotangents(self._bench, sums, begun_by(steps, later=paging is not None))
        self._ghosts = GhostExchange(self._bench, peers, self._gathers, self._edges, narrow=settings.ghost_bf16)
        intervals = self._layout.num_intervals
        exact = not settings.asynchronous
        self._lifetimes = Lifetimes(steps, intervals, self._bench.matrices, plan.results) if exact else None
        self._ages = Ages(steps.table, shard, _levels_read(steps)) if settings.asynchronous else None
        self._paging = paging
        self._residency = None if paging is None else self._make_residency(steps)

    def gather_static(self, each_interval: EachInterval) -> dict[int, Matrix | PagedArray]:
        """Make the gather that needs making only once, if the plan has one; {layer: all its rows}.

        ``each_interval(n, work)`` does some work for n intervals.
        """
        for stage, gather in self._gathers.items():
            if stage.output.source == "static":
                return {stage.output.layer: self._gather_once(stage, gather, each_interval)}
        return {}

    def _gather_once(self, stage: Gather, gather: Gatherer, each_interval: EachInterval) -> Matrix | PagedArray:
        if self._paging is None:
            return gather_once(stage, gather, self._bench, self._features, each_interval)
        made = gather_once_paged(stage, gather, self._bench, each_interval, self._paging)
        self._bench.matrices.put(stage.output, made)
        self._put_features()
        return made

    def share_static(self, made: Mapping[int, Matrix | PagedArray]) -> None:
        """Use the gathers another pass over this shard has made once."""
        for stage in self._gathers:
            if stage.output.source == "static":
                self._bench.matrices.put(stage.output, made[stage.output.layer])

    def _make_residency(self, steps: Steps) -> Residency:
        matrices = self._bench.matrices
        assert isinstance(matrices, PagedMatrices)
        self._put_features()
        lasting = [stage.output for stage in self._gathers if stage.output.source == "static"]
        kept = [FEATURES, *self._features.parts, *lasting, *self._plan.results]
        return Residency(
            steps, self._layout.num_intervals, matrices, paged_edges_of(steps, self._gathers, self._edges), kept
        )

    def _put_features(self) -> None:
        """Have features found where they are paged: by who reads their rows, and by who publishes them."""
        matrices, shard = self._bench.matrices, self._bench.shard
        if isinstance(shard, PagedArrangement) and shard.features is not None:
            matrices.put(FEATURES, shard.features)
            if not self._plan.features.gathered:
                matrices.put(self._plan.features, shard.features)

    def layer_output(self, layer: int) -> Iterator[tuple[int, Matrix]]:
        """(first row, rows as float32) of a layer's output, in the shard's order, an interval after the other."""
        slot = self._plan.layer_outputs[layer]
        assert slot is not None
        parts = self._plan.parts.get(slot, (slot,))
        paged = self._bench.matrices.paged
        pages = tuple(paged[part] for part in parts if part in paged)
        values = [self._bench.values(part) for part in parts]
        for interval, (begin, end) in enumerate(pairwise(self._layout.bounds.tolist())):
            with at_hand(pages, interval):
                rows = [_wide(each[begin:end]) for each in values]
                yield begin, rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)

    def run(self, task: Task) -> None:
        """Carry out a sparse task."""
        stage, interval = self._begin(task)
        if isinstance(stage, Scatter):
            for slot in stage.slots:
                self._publish(slot, interval, task.epoch)
            self._ghosts.post_rows(task, stage)
        elif task.kind is Kind.GATHER:
            assert isinstance(stage, Gather)
            gather = self._gathers[stage] if stage.over is None else self._edges[stage.over]
            gather.forward(interval, task.epoch)
        elif isinstance(stage, Gather):
            self._run_grad(task, stage, interval)
        else:
            assert isinstance(stage, ApplyEdge)
            slots = dict.fromkeys((stage.source, stage.destination))
            own = {slot: part for slot in slots if (part := self._cotangents.take_own(slot, interval)) is not None}
            self._ghosts.post_sums(task, *self._edges[stage].grad_scatter(interval, own))

    def receive(self, parcel: Parcel) -> None:
        """Put the rows a peer posted into the ghosts they are for."""
        self._ghosts.receive(parcel, self._steps.stages[parcel.task.step])
        if self._ages is not None:
            self._ages.written(parcel.task)

    def _place(self, task: Task) -> tuple[Any, int]:
        """The stage of a task, and the number of its interval on this server."""
        return self._steps.stages[task.step], task.interval - self.mine.start

    def _begin(self, task: Task) -> tuple[Any, int]:
        """The same, with what it reads at hand and noted."""
        stage, interval = self._place(task)
        if self._residency is not None:
            self._residency.before(task.step, interval)
        if self._ages is not None:
            self._ages.read(task)
        return stage, interval

    def _run_grad(self, task: Task, stage: Gather, interval: int) -> None:
        if stage.over is None and task.kind is Kind.GRAD_GATHER:
            begun = self._cotangents.take_begun(stage.inputs[0], interval)
            self._gathers[stage].grad_gather(interval, task.epoch, accumulate=begun)
            return
        cotangent = self._cotangents.take_own(stage.output, interval)
        if cotangent is None:  # the layer's output does not depend on what it gathered
            begin, end = self._layout.rows(stage.output.level, interval)
            cotangent = np.zeros((end - begin, stage.output.columns), np.float32)
        if stage.over is None:
            self._gathers[stage].grad_scatter(interval, cotangent)
            self._ghosts.post_cotangents(task, stage)
        else:
            self._edge_grads[interval] = self._edges[stage.over].grad_gather(interval, cotangent)

    def call(self, task: Task, weights: Mapping[str, Tensor]) -> Call:
        """The call of a dense task."""
        stage, interval = self._begin(task)
        assert isinstance(stage, ApplyVertex | Loss | ApplyEdge)
        backward = task.kind in (Kind.GRAD_APPLY_VERTEX, Kind.GRAD_APPLY_EDGE)
        kept = self._kept.pop((stage, interval), None)
        read = self._read.pop((stage, interval), None)
        inputs = kept.inputs if kept is not None else read or self._inputs(stage, interval, task.epoch)
        mode = Mode.GRADIENT if backward else Mode.LOSS if isinstance(stage, Loss) else Mode.FORWARD
        keep = mode is Mode.FORWARD and self._keeps(stage)
        if keep and isinstance(stage, ApplyEdge):  # a pool elsewhere may keep nothing, and these rows will be others
            self._read[stage, interval] = inputs
        return Call(
            task,
            mode,
            stage.body,
            weights,
            inputs,
            wanted=self._wanted(stage),
            cotangents=self._cotangents_of(stage, interval, task.epoch) if backward else (),
            targets=self._targets_of(stage, interval) if isinstance(stage, Loss) else None,
            columns=_columns(stage),
            keep=keep,
            kept=kept,
        )

    def _keeps(self, stage: ApplyVertex | Loss | ApplyEdge) -> bool:
        """Whether a body's autograd graph is kept for its gradient.

        Edges outnumber rows: keeping theirs holds several rows an edge until the backward pass. But where rows may be
        overwritten meanwhile, the gradient would be taken at others than those the message was made of.
        """
        return self._asynchronous if isinstance(stage, ApplyEdge) else self._keep_graph

    def accept(self, task: Task, reply: Reply) -> None:
        """Put the reply of a dense task where it belongs."""
        stage, interval = self._place(task)
        if reply.kept is not None:
            self._kept[stage, interval] = reply.kept
        if isinstance(stage, ApplyEdge):
            self._accept_edges(stage, task.kind, interval, reply)
            return
        assert isinstance(stage, ApplyVertex | Loss)
        if task.kind is Kind.APPLY_VERTEX:
            assert isinstance(stage, ApplyVertex)
            begin, end = self._layout.rows(stage.level, interval)
            for slot, rows in zip(stage.outputs, reply.outputs, strict=True):
                if rows.shape != (end - begin, slot.columns):
                    raise ValueError(
                        f"a body gave {list(rows.shape)} for {end - begin} rows of {slot.columns} columns: "
                        "it maps each row to one row."
                    )
                self._pending[slot, interval] = rows.contiguous().numpy()
                if not slot.gathered:
                    self._publish(slot, interval, task.epoch)
            return
        for slot, grad in zip(stage.inputs, reply.input_grads, strict=True):
            if grad is not None:
                self._cotangents.add(task.step, slot, interval, grad.contiguous().numpy())

    def finished(self, task: Task) -> None:
        """Book a finished task: rows and matrices nobody reads any more are given back."""
        if self._residency is not None:
            self._residency.after(task.step, self._place(task)[1])
        if self._lifetimes is not None:
            self._lifetimes.finished(task.step)
        if self._ages is not None:
            self._ages.written(task)

    def synchronise(self) -> None:
        """Make ready for exact epochs, with nothing in flight: what came too late for earlier ones counts for none."""
        for edges in self._edges.values():
            edges.forget()

    def take_ages(self) -> dict[int, int]:
        """How many values were read at each age since this was last asked; empty where all are of their own epoch."""
        return {} if self._ages is None else self._ages.take()

    @property
    def traffic(self) -> Mapping[str, int]:
        """Bytes posted to peers so far, by kind."""
        return self._ghosts.traffic

    def _accept_edges(self, stage: ApplyEdge, kind: Kind, interval: int, reply: Reply) -> None:
        edges = self._edges[stage]
        if kind is Kind.APPLY_EDGE:
            edges.messages[interval] = tuple(part.contiguous().numpy() for part in reply.outputs)
        elif stage.source.needs_grad or stage.destination.needs_grad:
            edges.grads[interval] = tuple(
                None if grad is None else grad.contiguous().numpy() for grad in reply.input_grads[:2]
            )

    def _wanted(self, stage: ApplyVertex | Loss | ApplyEdge) -> tuple[bool, ...]:
        if isinstance(stage, ApplyEdge):
            return stage.source.needs_grad, stage.destination.needs_grad, False
        return tuple(slot.needs_grad for slot in stage.inputs)

    def _inputs(self, stage: ApplyVertex | Loss | ApplyEdge, interval: int, epoch: int) -> tuple[Rows, ...]:
        if isinstance(stage, ApplyEdge):
            return self._edges[stage].inputs(interval)
        begin, end = self._layout.rows(stage.level, interval)
        return tuple(self._rows(slot, begin, end, epoch) for slot in stage.inputs)

    def _rows(self, slot: Slot, begin: int, end: int, epoch: int) -> Rows:
        if slot.source == "features" and not slot.gathered:
            return self._features.rows(slot, begin, end, epoch)
        return torch.from_numpy(_wide(self._bench.values(slot)[begin:end]))

    def _publish(self, slot: Slot, interval: int, epoch: int) -> None:
        """Store an interval's rows of a slot, dropout applied, in the precision it is kept in."""
        begin, end = self._layout.rows(slot.level, interval)
        features = slot.source == "features"
        columns = slice(slot.first_column, slot.first_column + slot.columns)
        rows = self._features.dense(begin, end, columns) if features else self._pending.pop((slot, interval))
        target = self._bench.values(slot)
        if slot.dropout > 0:
            drop = Dropout(slot.dropout, self._bench.seed, epoch, slot.layer)
            ids = self._bench.shard.ids[begin:end]
            kernels.dropout(rows, target[begin:end], ids, 0, end - begin, drop=drop, first_column=slot.first_column)
        else:
            self._bench.store(rows, target, begin, end)

    def _cotangents_of(
        self, stage: ApplyVertex | Loss | ApplyEdge, interval: int, epoch: int
    ) -> tuple[Tensor | None, ...]:
        if isinstance(stage, ApplyEdge):
            return self._edge_grads.pop(interval)
        assert isinstance(stage, ApplyVertex)
        found = (self._cotangents.take(slot, interval, epoch) for slot in stage.outputs)
        return tuple(None if grad is None else torch.from_numpy(grad) for grad in found)

    def _targets_of(self, stage: Loss, interval: int) -> Targets:
        assert self._targets is not None
        begin, end = self._layout.rows(stage.level, interval)
        return self._targets.of(slice(begin, end))


def _wide(rows: Matrix) -> Matrix:
    """Rows as float32."""
    if rows.dtype != np.uint16:
        return rows
    wide = np.empty(rows.shape, np.float32)
    kernels.from_bf16(rows, wide, 0, len(rows))
    return wide


def _levels_read(steps: Steps) -> dict[int, int]:
    """For each step that reads other intervals' rows, the level of the rows at whose edges it does."""
    levels = {}
    for step, row in enumerate(steps.table.steps):
        for need in row.needs:
            reader, writer = steps.stages[step], steps.stages[need.step]
            at = reader if isinstance(reader, Gather | ApplyEdge) else writer  # ∇AV reads what edges were sent back
            levels[step] = at.output.level if isinstance(at, Gather) else getattr(at, "level", 0)
    return levels


def _columns(stage: ApplyVertex | Loss | ApplyEdge) -> tuple[int, ...]:
    if isinstance(stage, ApplyEdge):
        return stage.columns
    return tuple(slot.columns for slot in stage.outputs) if isinstance(stage, ApplyVertex) else ()
