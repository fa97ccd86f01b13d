"""The graph server: owns a shard's rows and carries out its tasks.

Sparse tasks (GA, SC and their gradients) run here; for dense ones it makes the call and takes the reply. Values
stay in matrices that all intervals share. SC and ∇SC also post the interval's rows to the peers that have ghosts of
them, as soon as they are there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dorylus.paging import PagedArray
from dorylus.partition import LocalShard, PagedLocalShard, at_hand
from dorylus.pipeline import Kind, Task
from dorylus.saga import ApplyEdge, Call, Gather, Plan, Reply, Scatter, Slot, Steps, Targets
from dorylus.servers.graph.access_sets import FEATURES, Lifetimes, begun_by
from dorylus.servers.graph.ages import Ages, levels_read
from dorylus.servers.graph.cotangents import Cotangents
from dorylus.servers.graph.dense_calls import DenseCalls, Publisher
from dorylus.servers.graph.edges import EdgeGather
from dorylus.servers.graph.gathers import Gatherer, row_gatherer
from dorylus.servers.graph.ghosts import GhostExchange, GhostMessage, Peers
from dorylus.servers.graph.input_rows import InputRows
from dorylus.servers.graph.matrices import Arena, Matrices, PagedMatrices
from dorylus.servers.graph.paged import PageScheduler, Paging, gather_once_paged, paged_edges_of
from dorylus.servers.graph.pass_context import PassContext
from dorylus.servers.graph.static_gather import EachInterval, gather_once

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
        shard: LocalShard,
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
        self._plan, self._steps = plan, steps
        self._layout = shard.layout if training else shard.layout.everything()
        ghosts = (shard.ghosts, shard.out_ghosts)
        ghosts = ghosts if training else (ghosts[0].everything(), ghosts[1].everything())
        dtype: np.dtype[Any] = np.dtype(np.uint16 if settings.bf16 else np.float32)
        matrices = paging.matrices(self._layout.bounds, plan) if paging else Matrices(arena, self._share_of)
        self._bench = PassContext(shard, self._layout, *ghosts, matrices, training, settings.seed, dtype)
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
        self._publisher = Publisher(self._bench, self._features)
        # Edges outnumber rows: keeping their autograd graphs holds several rows an edge until the backward pass. But
        # where rows may be overwritten meanwhile, gradients would be taken at others than messages were made of.
        self._calls = DenseCalls(
            self._bench,
            self._publisher,
            self._edges,
            self._cotangents,
            targets,
            keep_rows=settings.keep_graph and training,
            keep_edges=settings.asynchronous,
        )
        self._ghosts = GhostExchange(self._bench, peers, self._gathers, self._edges, narrow=settings.ghost_bf16)
        intervals = self._layout.num_intervals
        exact = not settings.asynchronous
        self._lifetimes = Lifetimes(steps, intervals, self._bench.matrices, plan.results) if exact else None
        self._ages = Ages(steps.table, shard, levels_read(steps)) if settings.asynchronous else None
        self._paging = paging
        self._residency = None if paging is None else self._make_residency(steps)

    def _share_of(self, name: Any) -> float:
        """The part of a matrix's rows that this pass ever writes."""
        level = (name if isinstance(name, Slot) else name.slot).level
        return self._layout.num_rows(level) / max(1, self._layout.order.size)

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

    def _make_residency(self, steps: Steps) -> PageScheduler:
        matrices = self._bench.matrices
        assert isinstance(matrices, PagedMatrices)
        self._put_features()
        lasting = [stage.output for stage in self._gathers if stage.output.source == "static"]
        kept = [FEATURES, *self._features.parts, *lasting, *self._plan.results]
        return PageScheduler(
            steps, self._layout.num_intervals, matrices, paged_edges_of(steps, self._gathers, self._edges), kept
        )

    def _put_features(self) -> None:
        """Have features found where they are paged: by who reads their rows, and by who publishes them."""
        matrices, shard = self._bench.matrices, self._bench.shard
        if isinstance(shard, PagedLocalShard) and shard.features is not None:
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
        for interval, (begin, end) in enumerate(pairwise(self._layout.bounds.tolist())):
            with at_hand(pages, interval):
                rows = [self._bench.wide(part, begin, end) for part in parts]
                yield begin, rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)

    def run(self, task: Task) -> None:
        """Carry out a sparse task."""
        stage, interval = self._begin(task)
        if isinstance(stage, Scatter):
            for slot in stage.slots:
                self._publisher.publish(slot, interval, task.epoch)
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

    def receive(self, parcel: GhostMessage) -> None:
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
            edges = self._edges[stage.over]
            edges.message_grads[interval] = edges.grad_gather(interval, cotangent)

    def call(self, task: Task, weights: Mapping[str, Tensor]) -> Call:
        """The call of a dense task."""
        stage, interval = self._begin(task)
        return self._calls.call(task, stage, interval, weights)

    def accept(self, task: Task, reply: Reply) -> None:
        """Put the reply of a dense task where it belongs."""
        stage, interval = self._place(task)
        self._calls.accept(task, stage, interval, reply)

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

    def forget(self) -> None:
        """Hold no matrix any more: the pass is over, though a task of it may still be at work."""
        self._bench.matrices.forget()

    def take_ages(self) -> dict[int, int]:
        """How many values were read at each age since this was last asked; empty where all are of their own epoch."""
        return {} if self._ages is None else self._ages.take()

    @property
    def traffic(self) -> Mapping[str, int]:
        """Bytes posted to peers so far, by kind."""
        return self._ghosts.traffic
