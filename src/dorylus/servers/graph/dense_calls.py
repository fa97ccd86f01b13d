"""The dense tasks of a graph server: calls made of its rows, and replies stored where other tasks read them."""

from collections.abc import Mapping

from torch import Tensor

from dorylus.backends import Dropout, Matrix
from dorylus.pipeline import Kind, Task
from dorylus.saga import ApplyEdge, ApplyVertex, Call, Kept, Loss, Mode, Reply, Rows, Saved, Slot, Targets
from dorylus.servers.graph.cotangents import Cotangents
from dorylus.servers.graph.edges import EdgeGather
from dorylus.servers.graph.input_rows import InputRows
from dorylus.servers.graph.pass_context import PassContext


class Publisher:
    """Puts an interval's rows into the matrices that all intervals share, and reads them there."""

    def __init__(self, context: PassContext, features: InputRows) -> None:
        self._context, self._features = context, features
        self._waiting: dict[tuple[Slot, int], Matrix] = {}

    def take(self, slot: Slot, interval: int, epoch: int, rows: Matrix) -> None:
        """Take a body's rows: those that are gathered wait for SC, others are stored immediately."""
        self._waiting[slot, interval] = rows
        if not slot.gathered:
            self.publish(slot, interval, epoch)

    def publish(self, slot: Slot, interval: int, epoch: int) -> None:
        """Store an interval's rows of a slot, dropout applied, in the slot's number format."""
        context = self._context
        begin, end = context.layout.rows(slot.level, interval)
        columns = slice(slot.first_column, slot.first_column + slot.columns)
        features = slot.source == "features"
        rows = self._features.dense(begin, end, columns) if features else self._waiting.pop((slot, interval))
        target = context.values(slot)
        if slot.dropout > 0:
            drop = Dropout(slot.dropout, context.seed, epoch, slot.layer)
            ids = context.ids[begin:end]
            context.backend.dropout(rows, target[begin:end], ids, drop, first_column=slot.first_column)
        else:
            context.store(rows, target, begin, end)

    def rows(self, slot: Slot, begin: int, end: int, epoch: int) -> Rows:
        """Some rows of a slot, as a body reads them."""
        if slot.source == "features" and not slot.gathered:
            return self._features.rows(slot, begin, end, epoch)
        return self._context.backend.to_torch(self._context.wide(slot, begin, end))


Dense = ApplyVertex | Loss | ApplyEdge


class DenseCalls:
    """Makes calls and takes replies; ``keep_rows``, ``keep_edges``: whether autograd graphs are kept for backward."""

    def __init__(
        self,
        context: PassContext,
        publisher: Publisher,
        edges: Mapping[ApplyEdge, EdgeGather],
        cotangents: Cotangents,
        targets: Targets | None,
        *,
        keep_rows: bool,
        keep_edges: bool,
    ) -> None:
        self._context, self._publisher, self._edges = context, publisher, edges
        self._cotangents, self._targets = cotangents, targets
        self._keep_rows, self._keep_edges = keep_rows, keep_edges
        self._kept: dict[tuple[Dense, int], Kept | Saved] = {}
        self._read: dict[tuple[Dense, int], tuple[Rows, ...]] = {}

    def call(self, task: Task, stage: Dense, interval: int, weights: Mapping[str, Tensor]) -> Call:
        """The call of a task."""
        backward = task.kind in (Kind.GRAD_APPLY_VERTEX, Kind.GRAD_APPLY_EDGE)
        kept = self._kept.pop((stage, interval), None)
        read = self._read.pop((stage, interval), None)
        inputs = kept.inputs if kept is not None else read or self._inputs(stage, interval, task.epoch)
        mode = Mode.GRADIENT if backward else Mode.LOSS if isinstance(stage, Loss) else Mode.FORWARD
        keep = mode is Mode.FORWARD and (self._keep_edges if isinstance(stage, ApplyEdge) else self._keep_rows)
        if keep and isinstance(stage, ApplyEdge):  # copied: a remote pool may not keep the graph, and these rows change
            self._read[stage, interval] = inputs
        return Call(
            task,
            mode,
            stage.body,
            weights,
            inputs,
            needs_grad=_needs_grad(stage),
            cotangents=self._cotangents_of(stage, interval, task.epoch) if backward else (),
            targets=self._targets_of(stage, interval) if isinstance(stage, Loss) else None,
            columns=_columns(stage),
            keep=keep,
            kept=kept,
        )

    def accept(self, task: Task, stage: Dense, interval: int, reply: Reply) -> None:
        """Store a reply's outputs and gradients."""
        if reply.kept is not None:
            self._kept[stage, interval] = reply.kept
        if isinstance(stage, ApplyEdge):
            self._accept_edges(stage, task.kind, interval, reply)
        elif task.kind is Kind.APPLY_VERTEX:
            assert isinstance(stage, ApplyVertex)
            self._accept_rows(stage, interval, task.epoch, reply)
        else:
            for slot, grad in zip(stage.inputs, reply.input_grads, strict=True):
                if grad is not None:
                    self._cotangents.add(task.step, slot, interval, self._context.backend.from_torch(grad))

    def _accept_rows(self, stage: ApplyVertex, interval: int, epoch: int, reply: Reply) -> None:
        begin, end = self._context.layout.rows(stage.level, interval)
        for slot, rows in zip(stage.outputs, reply.outputs, strict=True):
            if rows.shape != (end - begin, slot.columns):
                raise ValueError(
                    f"a body returned {list(rows.shape)} for {end - begin} rows of {slot.columns} columns: "
                    "it maps each row to one row."
                )
            self._publisher.take(slot, interval, epoch, self._context.backend.from_torch(rows))

    def _accept_edges(self, stage: ApplyEdge, kind: Kind, interval: int, reply: Reply) -> None:
        edges, backend = self._edges[stage], self._context.backend
        if kind is Kind.APPLY_EDGE:
            edges.messages[interval] = tuple(backend.from_torch(part) for part in reply.outputs)
        elif stage.source.needs_grad or stage.destination.needs_grad:
            edges.grads[interval] = tuple(
                None if grad is None else backend.from_torch(grad) for grad in reply.input_grads[:2]
            )

    def _inputs(self, stage: Dense, interval: int, epoch: int) -> tuple[Rows, ...]:
        if isinstance(stage, ApplyEdge):
            return self._edges[stage].inputs(interval)
        begin, end = self._context.layout.rows(stage.level, interval)
        return tuple(self._publisher.rows(slot, begin, end, epoch) for slot in stage.inputs)

    def _cotangents_of(self, stage: Dense, interval: int, epoch: int) -> tuple[Tensor | None, ...]:
        if isinstance(stage, ApplyEdge):
            return self._edges[stage].message_grads.pop(interval)
        assert isinstance(stage, ApplyVertex)
        grads = (self._cotangents.take(slot, interval, epoch) for slot in stage.outputs)
        return tuple(None if grad is None else self._context.backend.to_torch(grad) for grad in grads)

    def _targets_of(self, stage: Loss, interval: int) -> Targets:
        assert self._targets is not None
        begin, end = self._context.layout.rows(stage.level, interval)
        return self._targets.of(slice(begin, end))


def _needs_grad(stage: Dense) -> tuple[bool, ...]:
    if isinstance(stage, ApplyEdge):
        return stage.source.needs_grad, stage.destination.needs_grad, False
    return tuple(slot.needs_grad for slot in stage.inputs)


def _columns(stage: Dense) -> tuple[int, ...]:
    if isinstance(stage, ApplyEdge):
        return stage.columns
    return tuple(slot.columns for slot in stage.outputs) if isinstance(stage, ApplyVertex) else ()
