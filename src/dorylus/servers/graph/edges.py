"""Layers with an ApplyEdge: rows become edge tensors for the pool, messages become rows again.

The gradient of an edge's source is pushed to it: added up where the edge is, then, for ghosts, sent to their owner.
"""

import threading
from collections import defaultdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dorylus.backends import HostArray, Matrix
from dorylus.saga import Gather, Slot
from dorylus.servers.graph.gathers import message_gatherer
from dorylus.servers.graph.pass_context import Grad, PassContext


class Sums(NamedTuple):
    """What the edges of a peer's interval add to some rows of ours."""

    interval: int
    rows: NDArray[np.int32]
    values: HostArray


class EdgeGather:
    """Messages of one layer's edges, interval by interval, and their reduction to rows."""

    def __init__(self, stage: Gather, context: PassContext) -> None:
        assert stage.over is not None
        self.stage, self.over, self.context = stage, stage.over, context
        self._backend, self._gatherer = context.backend, message_gatherer(stage, context)
        self.edges, self._placed = self._gatherer.edges, self._gatherer.placed
        self.messages: dict[int, tuple[Matrix, ...]] = {}
        self.message_grads: dict[int, tuple[Tensor, ...]] = {}
        self.grads: dict[int, tuple[Matrix | None, ...]] = {}  # of the edges' sources and destinations
        self._ghosts: dict[int, NDArray[np.int32]] = {}
        self._received: dict[int, list[Sums]] = defaultdict(list)
        self._lock = threading.Lock()

    def inputs(self, interval: int) -> tuple[Tensor, Tensor, Tensor]:
        """What ApplyEdge reads: for each of the interval's in-edges its source row, destination row and weight."""
        begin, end, first, last = self._range(interval)
        sources = self.edges.indices[first:last]
        destinations = np.repeat(np.arange(begin, end, dtype=np.int32), np.diff(self.edges.indptr[begin : end + 1]))
        values, backend = self.context.values, self._backend
        x_source = backend.take_rows(values(self.over.source), self._placed.indices[first:last])
        x_destination = backend.take_rows(values(self.over.destination), destinations)
        weight = backend.from_host(self._weights(sources, destinations, first))
        return backend.to_torch(x_source), backend.to_torch(x_destination), backend.to_torch(weight)

    def forward(self, interval: int, epoch: int) -> None:
        """GA: the interval's messages, reduced."""
        self._gatherer.forward(interval, self.messages[interval])
        if not self.context.training or not self.stage.spec.keeps_messages:
            del self.messages[interval]

    def grad_gather(self, interval: int, cotangent: Matrix) -> tuple[Tensor, ...]:
        """∇GA: the cotangent of every message (and score) of the interval."""
        begin, end, _, _ = self._range(interval)
        padded = self.context.cotangent(self.stage.output)
        self._backend.store(cotangent, padded[begin:end])
        messages = self.messages.pop(interval) if self.stage.spec.keeps_messages else ()
        return tuple(map(self._backend.to_torch, self._gatherer.grad_gather(interval, messages, padded)))

    def grad_scatter(self, interval: int, own: dict[Slot, Matrix]) -> tuple[NDArray[np.int32], Matrix]:
        """∇SC: cotangents of the edges' two ends, added to their rows; returns (ghosts, sums) for the ghosts' owners.

        ``own`` are the cotangents the interval's rows already have from dense tasks. In exact epochs intervals come
        here one after the other, so that a sum does not depend on their order.
        """
        begin, end, first, last = self._range(interval)
        d_source, d_destination = self.grads.pop(interval)
        backend = self._backend
        with self._lock:
            for slot, part in own.items():
                backend.add(part, self._sums(slot)[begin : begin + len(part)])
            if d_destination is not None:
                into = self._sums(self.over.destination)
                backend.segment_sum(self._placed, d_destination, into, begin, end, accumulate=True)
            ghosts = self.ghosts_of(interval)
            if d_source is None:
                return ghosts, backend.allocate(len(ghosts), self.over.source.columns, zero=True)
            into, rows = self._sums(self.over.source), ghosts + np.int32(self.context.num_rows)
            backend.scatter_add(d_source, self._placed.indices[first:last], into)
            sums = backend.take_rows(into, rows)
            backend.clear_rows(into, rows)  # sent to the owner: not kept here
        return ghosts, sums

    def ghosts_of(self, interval: int) -> NDArray[np.int32]:
        """Which ghosts the interval's edges come from, ascending."""
        if interval not in self._ghosts:
            *_, first, last = self._range(interval)
            sources = self.edges.indices[first:last]
            ghosts = np.unique(sources[sources >= self.context.num_rows]) - self.context.num_rows
            self._ghosts[interval] = ghosts.astype(np.int32)
        return self._ghosts[interval]

    def receive(self, sums: Sums) -> None:
        """Hold what a peer's edges add to our rows until the rows' intervals take it."""
        starts = np.searchsorted(self.context.layout.bounds, sums.rows, side="right") - 1
        with self._lock:
            for interval in np.unique(starts).tolist():
                part = starts == interval
                self._received[interval].append(Sums(sums.interval, sums.rows[part], sums.values[part]))

    def take(self, slot: Slot, interval: int) -> Matrix:
        """The cotangents added to an interval's rows since they were last taken: each is taken exactly once."""
        begin, end = self.context.layout.rows(slot.level, interval)
        with self._lock:
            total = self._sums(slot)
            if slot is self.over.source:
                for _, rows, values in sorted(self._received.pop(interval, []), key=lambda sums: sums.interval):
                    self._backend.scatter_add(self._backend.from_host(values), rows, total)
            taken = self._backend.copy(total[begin:end])
            self._backend.clear(total[begin:end])
        return taken

    def drop_untaken(self) -> None:
        """Drop the cotangents that no task has taken: they arrived after the end of their epochs."""
        with self._lock:
            self._received.clear()
            self.context.matrices.release([Grad(self.over.source), Grad(self.over.destination)])

    def _sums(self, slot: Slot) -> Matrix:
        rows = self.context.num_rows + self.context.ghosts.num_rows
        return self.context.matrices.get(Grad(slot), rows, slot.columns, zero=True)

    def _range(self, interval: int) -> tuple[int, int, int, int]:
        begin, end = self.context.layout.rows(self.over.level, interval)
        return begin, end, int(self.edges.indptr[begin]), int(self.edges.indptr[end])

    def _weights(self, sources: NDArray[np.int32], destinations: NDArray[np.int32], first: int) -> HostArray:
        weight = np.ones(len(sources), np.float32)
        if self.edges.values is not None:
            weight *= self.edges.values[first : first + len(sources)]
        if self.edges.row_scale is not None:
            weight *= self.edges.row_scale[destinations]
        if self.edges.col_scale is not None:
            weight *= self.edges.col_scale[sources]
        return weight[:, None]
