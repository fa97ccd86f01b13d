"""The graph server: owns a shard's rows and carries out its tasks.

Sparse tasks (GA, SC and their gradients) run here; for dense ones it makes the call and stores the reply. Values
stay in matrices that all intervals share. SC and ∇SC also post the interval's rows to the peers that have ghosts of
them, as soon as they are there.

The array work goes through a back end (:class:`~dorylus.backends.Backend`), and where matrices lie is decided by a
storage (:class:`~dorylus.servers.graph.storage.Storage`). Both are handed to the server.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from dorylus.backends import Backend, HostArray, NumberFormat
from dorylus.partition import LocalShard
from dorylus.pipeline import Kind, Task
from dorylus.saga import ApplyEdge, Call, Gather, Plan, Reply, Scatter, Steps, Targets
from dorylus.servers.graph.access_sets import Lifetimes, begun_by
from dorylus.servers.graph.ages import Ages, levels_read
from dorylus.servers.graph.cotangents import Cotangents
from dorylus.servers.graph.dense_calls import DenseCalls, Publisher
from dorylus.servers.graph.edges import EdgeGather
from dorylus.servers.graph.gathers import EachInterval, Gatherer, row_gatherer
from dorylus.servers.graph.ghosts import GhostExchange, GhostMessage, Peers
from dorylus.servers.graph.input_rows import InputRows
from dorylus.servers.graph.pass_context import PassContext
from dorylus.servers.graph.storage import StaticRows, Storage


@dataclass(frozen=True, kw_only=True)
class PassSettings:
    """How a pass is made: for training or evaluation, exactly or not, and in which number format.

    ``asynchronous``: values of other epochs are read, so no matrix is released and ages are counted. ``bf16``: what is
    gathered is stored in it. ``ghost_bf16``: rows travel in it.
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
        backend: Backend,
        storage: Storage,
        peers: Peers,
        settings: PassSettings,
        targets: Targets | None = None,
    ) -> None:
        training = settings.training
        self.mine = shard.mine
        self._plan, self._steps = plan, steps
        self._layout = shard.layout if training else shard.layout.everything()
        ghosts = (shard.ghosts, shard.out_ghosts)
        ghosts = ghosts if training else (ghosts[0].everything(), ghosts[1].everything())
        number_format = NumberFormat.BF16 if settings.bf16 else NumberFormat.FLOAT32
        self._storage = storage.open_pass(self._layout, plan)
        self._context = PassContext(
            shard, self._layout, *ghosts, self._storage.matrices, training, settings.seed, number_format, backend
        )
        self._features = InputRows(self._context, plan)
        if plan.features.gathered and plan.features.dropout == 0:
            self._storage.publish_features(self._features, self._context)
        self._gathers: dict[Gather, Gatherer] = {}
        self._edges: dict[ApplyEdge, EdgeGather] = {}
        for stage in plan.stages:
            if isinstance(stage, Gather) and stage.over is not None:
                self._edges[stage.over] = EdgeGather(stage, self._context)
            elif isinstance(stage, Gather):
                self._gathers[stage] = row_gatherer(stage, self._context)
        sums = {slot: edges for stage, edges in self._edges.items() for slot in (stage.source, stage.destination)}
        begun = begun_by(steps, later=self._storage.parts_wait_in_rows)
        self._cotangents = Cotangents(self._context, sums, begun)
        self._publisher = Publisher(self._context, self._features)
        # Edges outnumber rows: keeping their autograd graphs holds several rows an edge until the backward pass. But
        # rows that may be overwritten before it would give gradients of other messages than were sent.
        self._calls = DenseCalls(
            self._context,
            self._publisher,
            self._edges,
            self._cotangents,
            targets,
            keep_rows=settings.keep_graph and training,
            keep_edges=settings.asynchronous,
        )
        self._ghosts = GhostExchange(self._context, peers, self._gathers, self._edges, narrow=settings.ghost_bf16)
        intervals = self._layout.num_intervals
        exact = not settings.asynchronous
        self._lifetimes = Lifetimes(steps, intervals, self._context.matrices, plan.results) if exact else None
        self._ages = Ages(steps.table, shard, levels_read(steps)) if settings.asynchronous else None
        self._task_rows = self._storage.task_rows(self._context, steps, self._gathers, self._edges)

    def gather_static(self, each_interval: EachInterval) -> dict[int, StaticRows]:
        """Make the gather that needs making only once, if the plan has one; {layer: all its rows}.

        ``each_interval(n, work)`` does some work for n intervals.
        """
        for stage, gather in self._gathers.items():
            if stage.output.source == "static":
                rows = self._storage.gather_once(stage, gather, self._context, self._features, each_interval)
                return {stage.output.layer: rows}
        return {}

    def share_static(self, gathered: Mapping[int, StaticRows]) -> None:
        """Use the gathers another pass over this shard has made once."""
        for stage in self._gathers:
            if stage.output.source == "static":
                self._context.matrices.put(stage.output, gathered[stage.output.layer])

    def layer_output(self, layer: int) -> Iterator[tuple[int, HostArray]]:
        """(first row, rows as float32) of a layer's output, in the shard's order, an interval after the other."""
        slot = self._plan.layer_outputs[layer]
        assert slot is not None
        parts = self._plan.parts.get(slot, (slot,))
        for interval, (begin, end) in enumerate(pairwise(self._layout.bounds.tolist())):
            with self._context.matrices.in_memory(parts, interval):
                rows = [self._context.backend.to_host(self._context.wide(part, begin, end)) for part in parts]
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

    def receive(self, message: GhostMessage) -> None:
        """Store the rows a peer posted in their ghosts."""
        self._ghosts.receive(message, self._steps.stages[message.task.step])
        if self._ages is not None:
            self._ages.written(message.task)

    def _place(self, task: Task) -> tuple[Any, int]:
        """The stage of a task, and the number of its interval on this server."""
        return self._steps.stages[task.step], task.interval - self.mine.start

    def _begin(self, task: Task) -> tuple[Any, int]:
        """The same, with the rows it reads in memory, and their ages counted."""
        stage, interval = self._place(task)
        self._task_rows.before(task.step, interval)
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
            cotangent = self._context.backend.allocate(end - begin, stage.output.columns, zero=True)
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
        """Store the reply of a dense task."""
        stage, interval = self._place(task)
        self._calls.accept(task, stage, interval, reply)

    def finished(self, task: Task) -> None:
        """Count a finished task: rows and matrices that no task reads any more are released."""
        self._task_rows.after(task.step, self._place(task)[1])
        if self._lifetimes is not None:
            self._lifetimes.finished(task.step)
        if self._ages is not None:
            self._ages.written(task)

    def synchronise(self) -> None:
        """Prepare exact epochs, with nothing in flight: values that arrived late for earlier epochs are dropped."""
        for edges in self._edges.values():
            edges.drop_untaken()

    def release_memory(self) -> None:
        """Release all matrices: the pass is over, though one of its tasks may still run."""
        self._context.matrices.release_all()

    def take_ages(self) -> dict[int, int]:
        """How many values were read at each age since the last call; empty where all are of their own epoch."""
        return {} if self._ages is None else self._ages.take()

    @property
    def traffic(self) -> Mapping[str, int]:
        """Bytes posted to peers so far, by kind."""
        return self._ghosts.traffic
