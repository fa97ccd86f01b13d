"""Sending rows to peers and taking theirs: the graph server's side of the ghost exchange.

What travels between graph servers: the rows of one interval, for the ghosts of one peer, in one parcel.
"""

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import native
from dorylus.partition import SendList
from dorylus.pipeline import Task
from dorylus.saga import ApplyEdge, Gather, Scatter, Stage
from dorylus.servers.graph.edges import EdgeGather, Sums
from dorylus.servers.graph.gathers import Gatherer
from dorylus.servers.graph.pass_context import PassContext

Matrix = NDArray[Any]


class GhostMessage(NamedTuple):
    """The rows that a finished SC or ∇SC makes visible, for one peer."""

    task: Task
    parts: tuple[Matrix, ...]

    @property
    def num_bytes(self) -> int:
        """What it weighs on the wire, less the frame."""
        return sum(part.nbytes for part in self.parts)


Post = Callable[[int, GhostMessage], None]  # (peer, parcel): sees to it that the peer gets the parcel
Traffic = Counter[str]  # bytes by kind


def packed(matrix: Matrix, rows: NDArray[np.int32], *, narrow: bool) -> Matrix:
    """Some rows of a matrix as they travel: bfloat16 where the matrix holds it or ``narrow`` asks for it."""
    if matrix.dtype == np.uint16:
        taken: Matrix = matrix[rows]
        return taken
    out = np.empty((len(rows), matrix.shape[1]), np.float32)
    native.gather_rows(matrix, rows, out)
    if not narrow:
        return out
    short = np.empty(out.shape, np.uint16)
    native.to_bf16(out, short, 0, len(out))
    return short


def unpack(part: Matrix, target: Matrix) -> None:
    """Write rows that travelled into the ghosts' place."""
    if part.dtype == target.dtype:
        target[:] = part
    elif part.dtype == np.uint16:
        native.from_bf16(part, target, 0, len(part))
    else:
        native.to_bf16(part, target, 0, len(part))


@dataclass(frozen=True)
class Peers:
    """Who has ghosts of whom: for every peer, which own rows it wants forward and which cotangents backward."""

    bounds: tuple[int, ...]  # the first interval of every server
    forward: Mapping[int, SendList]
    backward: Mapping[int, SendList]
    post: Post


class GhostExchange:
    """One server's parcels, out and in."""

    def __init__(
        self,
        bench: PassContext,
        peers: Peers,
        gathers: Mapping[Gather, Gatherer],
        edges: Mapping[ApplyEdge, EdgeGather],
        *,
        narrow: bool,
    ) -> None:
        self._bench, self._peers, self._gathers, self._edges = bench, peers, gathers, edges
        self._narrow = narrow
        self._sources = [_servers(read, peers.bounds) for read in bench.shard.reads().sources]
        self._lock = threading.Lock()
        self.traffic: Traffic = Traffic()

    def post_rows(self, task: Task, stage: Scatter) -> None:
        """SC: an interval's rows, to every peer that gathers from the interval."""
        wanted = [(slot, self._bench.values(slot)) for slot in stage.slots]
        for peer, sends in self._peers.forward.items():
            if sends.wants(task.interval):
                rows = {slot: sends.rows(slot.level, task.interval) for slot, _ in wanted}
                parts = [packed(m, rows[slot], narrow=self._narrow and not slot.exact) for slot, m in wanted]
                self._post(peer, "ghosts", GhostMessage(task, tuple(parts)))

    def post_cotangents(self, task: Task, stage: Gather) -> None:
        """∇SC: what the gradient needs of an interval's gathered rows, to every peer they were gathered from."""
        gather = self._gathers[stage]
        for peer, sends in self._peers.backward.items():
            if sends.wants(task.interval):
                rows = sends.rows(stage.output.level, task.interval)
                pairs = zip(gather.parts, gather.published(), strict=True)
                parts = [packed(matrix, rows, narrow=self._narrow and part.narrow) for part, matrix in pairs]
                self._post(peer, "ghost_gradients", GhostMessage(task, tuple(parts)))

    def post_sums(self, task: Task, ghosts: NDArray[np.int32], sums: Matrix) -> None:
        """∇SC of edge messages: what an interval's edges add to their sources, to the servers that own those."""
        first = self._bench.ghosts.first[list(self._peers.bounds)]
        cuts = np.searchsorted(ghosts, first)
        # Also to those who get nothing at this level: they wait for word from every interval that reads them.
        for peer in self._sources[task.interval - self._bench.shard.mine.start] & self._peers.forward.keys():
            begin, end = cuts[peer], cuts[peer + 1]
            numbers = (ghosts[begin:end] - first[peer]).astype(np.int32)
            parts = (numbers, packed(sums, np.arange(begin, end, dtype=np.int32), narrow=self._narrow))
            self._post(peer, "ghost_gradients", GhostMessage(task, parts))

    def receive(self, parcel: GhostMessage, stage: Stage | None) -> None:
        """Put a peer's rows where this server's gathers read them."""
        task, own = parcel.task, self._bench.num_rows
        if isinstance(stage, Scatter):
            for slot, part in zip(stage.slots, parcel.parts, strict=True):
                begin, end = self._bench.ghosts.rows(slot.level, task.interval)
                if end > begin:
                    unpack(part, self._bench.values(slot)[own + begin : own + end])
        elif isinstance(stage, Gather):
            begin, end = self._bench.out_ghosts.rows(stage.output.level, task.interval)
            if end > begin:
                for part, matrix in zip(parcel.parts, self._gathers[stage].published(), strict=True):
                    unpack(part, matrix[own + begin : own + end])
        else:
            assert isinstance(stage, ApplyEdge)
            self._receive_sums(parcel, stage)

    def _receive_sums(self, parcel: GhostMessage, stage: ApplyEdge) -> None:
        numbers, part = parcel.parts
        sender = int(np.searchsorted(self._peers.bounds, parcel.task.interval, side="right")) - 1
        values = np.empty(part.shape, np.float32)
        unpack(part, values)
        self._edges[stage].receive(Sums(parcel.task.interval, self._peers.forward[sender].all_rows[numbers], values))

    def _post(self, peer: int, kind: str, parcel: GhostMessage) -> None:
        with self._lock:
            self.traffic[kind] += parcel.num_bytes
        self._peers.post(peer, parcel)


def _servers(intervals: Iterable[int], bounds: Sequence[int]) -> set[int]:
    return {bisect_right(bounds, interval) - 1 for interval in intervals}
