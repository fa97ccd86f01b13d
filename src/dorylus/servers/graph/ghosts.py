"""Sending rows to peers and storing theirs: the graph server's side of the ghost exchange.

The rows of one interval, for the ghosts of one peer, travel in one message, as host arrays.
"""

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import Backend, HostArray, Matrix, NumberFormat
from dorylus.partition import SendList
from dorylus.pipeline import Task
from dorylus.saga import ApplyEdge, Gather, Scatter, Stage
from dorylus.servers.graph.edges import EdgeGather, Sums
from dorylus.servers.graph.gathers import Gatherer
from dorylus.servers.graph.pass_context import PassContext


class GhostMessage(NamedTuple):
    """The rows that a finished SC or ∇SC makes visible, for one peer."""

    task: Task
    parts: tuple[HostArray, ...]

    @property
    def num_bytes(self) -> int:
        """Its size on the wire, less the frame."""
        return sum(part.nbytes for part in self.parts)


Post = Callable[[int, GhostMessage], None]  # (peer, message): delivers the message to the peer
Traffic = Counter[str]  # bytes by kind


def pack(backend: Backend, matrix: Matrix, rows: NDArray[np.int32], *, narrow: bool) -> HostArray:
    """Some rows of a matrix as they travel: in bfloat16 where the matrix holds it, or where ``narrow`` is set."""
    held = backend.number_format(matrix)
    return backend.to_host(backend.take_rows(matrix, rows, NumberFormat.BF16 if narrow else held))


def unpack(backend: Backend, part: HostArray, target: Matrix) -> None:
    """Write rows that travelled into the ghosts' place."""
    backend.store(backend.from_host(part), target)


@dataclass(frozen=True)
class Peers:
    """The peers of a server: for each, which own rows it reads as ghosts forward, and which cotangents backward."""

    bounds: tuple[int, ...]  # the first interval of every server
    forward: Mapping[int, SendList]
    backward: Mapping[int, SendList]
    post: Post


class GhostExchange:
    """The messages of one server, sent and received."""

    def __init__(
        self,
        context: PassContext,
        peers: Peers,
        gathers: Mapping[Gather, Gatherer],
        edges: Mapping[ApplyEdge, EdgeGather],
        *,
        narrow: bool,
    ) -> None:
        self._context, self._peers, self._gathers, self._edges = context, peers, gathers, edges
        self._narrow = narrow
        self._sources = [_servers(read, peers.bounds) for read in context.shard.reads().sources]
        self._lock = threading.Lock()
        self.traffic: Traffic = Traffic()

    def post_rows(self, task: Task, stage: Scatter) -> None:
        """SC: an interval's rows, to every peer that gathers from the interval."""
        matrices = [(slot, self._context.values(slot)) for slot in stage.slots]
        for peer, sends in self._peers.forward.items():
            if sends.has_ghosts_in(task.interval):
                rows = {slot: sends.rows(slot.level, task.interval) for slot, _ in matrices}
                parts = [self._pack(m, rows[slot], narrow=not slot.exact) for slot, m in matrices]
                self._post(peer, "ghosts", GhostMessage(task, tuple(parts)))

    def post_cotangents(self, task: Task, stage: Gather) -> None:
        """∇SC: what the gradient needs of an interval's gathered rows, to every peer they were gathered from."""
        gather = self._gathers[stage]
        for peer, sends in self._peers.backward.items():
            if sends.has_ghosts_in(task.interval):
                rows = sends.rows(stage.output.level, task.interval)
                pairs = zip(gather.parts, gather.published(), strict=True)
                parts = [self._pack(matrix, rows, narrow=part.narrow) for part, matrix in pairs]
                self._post(peer, "ghost_gradients", GhostMessage(task, tuple(parts)))

    def post_sums(self, task: Task, ghosts: NDArray[np.int32], sums: Matrix) -> None:
        """∇SC of edge messages: what an interval's edges add to their sources, to the servers that own those."""
        first = self._context.ghosts.first[list(self._peers.bounds)]
        starts = np.searchsorted(ghosts, first)
        # Also to peers that get nothing at this level: they wait for a message of every interval that reads them.
        for peer in self._sources[task.interval - self._context.shard.mine.start] & self._peers.forward.keys():
            begin, end = starts[peer], starts[peer + 1]
            numbers = (ghosts[begin:end] - first[peer]).astype(np.int32)
            parts = (numbers, self._pack(sums, np.arange(begin, end, dtype=np.int32), narrow=True))
            self._post(peer, "ghost_gradients", GhostMessage(task, parts))

    def receive(self, message: GhostMessage, stage: Stage | None) -> None:
        """Put a peer's rows where this server's gathers read them."""
        task, own = message.task, self._context.num_rows
        if isinstance(stage, Scatter):
            for slot, part in zip(stage.slots, message.parts, strict=True):
                begin, end = self._context.ghosts.rows(slot.level, task.interval)
                if end > begin:
                    unpack(self._context.backend, part, self._context.values(slot)[own + begin : own + end])
        elif isinstance(stage, Gather):
            begin, end = self._context.out_ghosts.rows(stage.output.level, task.interval)
            if end > begin:
                for part, matrix in zip(message.parts, self._gathers[stage].published(), strict=True):
                    unpack(self._context.backend, part, matrix[own + begin : own + end])
        else:
            assert isinstance(stage, ApplyEdge)
            self._receive_sums(message, stage)

    def _receive_sums(self, message: GhostMessage, stage: ApplyEdge) -> None:
        numbers, part = message.parts
        sender = int(np.searchsorted(self._peers.bounds, message.task.interval, side="right")) - 1
        backend = self._context.backend
        values = backend.to_host(backend.widened(backend.from_host(part)))
        self._edges[stage].receive(Sums(message.task.interval, self._peers.forward[sender].all_rows[numbers], values))

    def _pack(self, matrix: Matrix, rows: NDArray[np.int32], *, narrow: bool) -> HostArray:
        """Some rows as they travel; ``narrow``: where ghosts travel in bfloat16, so do these."""
        return pack(self._context.backend, matrix, rows, narrow=self._narrow and narrow)

    def _post(self, peer: int, kind: str, message: GhostMessage) -> None:
        with self._lock:
            self.traffic[kind] += message.num_bytes
        self._peers.post(peer, message)


def _servers(intervals: Iterable[int], bounds: Sequence[int]) -> set[int]:
    return {bisect_right(bounds, interval) - 1 for interval in intervals}
