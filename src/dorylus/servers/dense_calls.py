"""The dense tasks of a graph server: calls made of its rows, and replies put where they belong."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dorylus.pipeline import Kind, Task
from dorylus.saga.dense import Call, Kept, Mode, Reply, Saved, Targets
from dorylus.saga.layer import Rows
from dorylus.saga.stages import ApplyEdge, ApplyVertex, Loss
from dorylus.servers.bench import Bench
from dorylus.servers.cotangents import Cotangents
from dorylus.servers.edges import EdgeGather
from dorylus.servers.publisher import Publisher

Dense = ApplyVertex | Loss | ApplyEdge


class DenseCalls:
    """Makes calls and takes replies; ``keep_rows`` and ``keep_edges``: whether autograd graphs are kept until ∇."""

    def __init__(
        self,
        bench: Bench,
        publisher: Publisher,
        edges: Mapping[ApplyEdge, EdgeGather],
        cotangents: Cotangents,
        targets: Targets | None,
        *,
        keep_rows: bool,
        keep_edges: bool,
    ) -> None:
        self._bench, self._publisher, self._edges = bench, publisher, edges
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
        if keep and isinstance(stage, ApplyEdge):  # a pool elsewhere may keep nothing, and these rows will be others
            self._read[stage, interval] = inputs
        return Call(
            task,
            mode,
            stage.body,
            weights,
            inputs,
            wanted=_wanted(stage),
            cotangents=self._cotangents_of(stage, interval, task.epoch) if backward else (),
            targets=self._targets_of(stage, interval) if isinstance(stage, Loss) else None,
            columns=_columns(stage),
            keep=keep,
            kept=kept,
        )

    def accept(self, task: Task, stage: Dense, interval: int, reply: Reply) -> None:
        """Put the reply where it belongs."""
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
                    self._cotangents.add(task.step, slot, interval, grad.contiguous().numpy())

    def _accept_rows(self, stage: ApplyVertex, interval: int, epoch: int, reply: Reply) -> None:
        begin, end = self._bench.layout.rows(stage.level, interval)
        for slot, rows in zip(stage.outputs, reply.outputs, strict=True):
            if rows.shape != (end - begin, slot.columns):
                raise ValueError(
                    f"a body gave {list(rows.shape)} for {end - begin} rows of {slot.columns} columns: "
                    "it maps each row to one row."
                )
            self._publisher.take(slot, interval, epoch, rows.contiguous().numpy())

    def _accept_edges(self, stage: ApplyEdge, kind: Kind, interval: int, reply: Reply) -> None:
        edges = self._edges[stage]
        if kind is Kind.APPLY_EDGE:
            edges.messages[interval] = tuple(part.contiguous().numpy() for part in reply.outputs)
        elif stage.source.needs_grad or stage.destination.needs_grad:
            edges.grads[interval] = tuple(
                None if grad is None else grad.contiguous().numpy() for grad in reply.input_grads[:2]
            )

    def _inputs(self, stage: Dense, interval: int, epoch: int) -> tuple[Rows, ...]:
        if isinstance(stage, ApplyEdge):
            return self._edges[stage].inputs(interval)
        begin, end = self._bench.layout.rows(stage.level, interval)
        return tuple(self._publisher.rows(slot, begin, end, epoch) for slot in stage.inputs)

    def _cotangents_of(self, stage: Dense, interval: int, epoch: int) -> tuple[Tensor | None, ...]:
        if isinstance(stage, ApplyEdge):
            return self._edges[stage].message_grads.pop(interval)
        assert isinstance(stage, ApplyVertex)
        found = (self._cotangents.take(slot, interval, epoch) for slot in stage.outputs)
        return tuple(None if grad is None else torch.from_numpy(grad) for grad in found)

    def _targets_of(self, stage: Loss, interval: int) -> Targets:
        assert self._targets is not None
        begin, end = self._bench.layout.rows(stage.level, interval)
        return self._targets.of(slice(begin, end))


def _wanted(stage: Dense) -> tuple[bool, ...]:
    if isinstance(stage, ApplyEdge):
        return stage.source.needs_grad, stage.destination.needs_grad, False
    return tuple(slot.needs_grad for slot in stage.inputs)


def _columns(stage: Dense) -> tuple[int, ...]:
    if isinstance(stage, ApplyEdge):
        return stage.columns
    return tuple(slot.columns for slot in stage.outputs) if isinstance(stage, ApplyVertex) else ()
