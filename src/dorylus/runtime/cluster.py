"""The seam between the trainer and wherever servers live.

What a forward pass says of every vertex, to be looked at some vertices at a time.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import add
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dorylus.errors import TrainingError
from dorylus.paging import Moved
from dorylus.pipeline import DENSE
from dorylus.runtime.engine import Span
from dorylus.servers import PSState

Block = tuple[NDArray[np.int32], NDArray[np.float32]]  # vertices, and a row for each


@dataclass(frozen=True)
class Outputs:
    """Rows of a layer's output. ``blocks`` gives every vertex once; a block's rows hold until the next is asked for."""

    num_vertices: int
    columns: int
    blocks: Callable[[], Iterator[Block]]

    def whole(self) -> NDArray[np.float32]:
        """All rows, in the graph's order."""
        out = np.empty((self.num_vertices, self.columns), np.float32)
        for vertices, rows in self.blocks():
            out[vertices] = rows
        return out


class ServersLostError(TrainingError):
    """Servers of a run died, or cannot be reached: the run can go on once they are back."""


class NotRevivedError(ServersLostError):
    """Servers that were lost are not there again within their time."""


class EpochDroppedError(TrainingError):
    """The epoch, or the evaluation, in hand was given up: the state is that of the last epoch that was finished."""


def total_loss(parts: Mapping[int, float]) -> float:
    """The loss of an epoch, from those of its intervals, added in their order.

    Not by ``sum``, which adds floats in another way from Python 3.12 on: a run has the same bits on every Python.
    """
    return reduce(add, (parts[interval] for interval in sorted(parts)), 0.0)


class Delivery(NamedTuple):
    """When a parcel was on its way from one server to another."""

    server: int
    peer: int
    num_bytes: int
    start_s: float
    end_s: float


class ServerReport(NamedTuple):
    """What an epoch was for a graph server in a process of its own.

    ``sent_bytes`` went to other graph servers since the last report, also for evaluations, as the sockets count them.
    """

    server: int
    host: str
    seconds: float
    sent_bytes: int
    memory_bytes: int
    peak_memory_bytes: int


@dataclass(frozen=True)
class EpochReport:
    """What one epoch of training did, and what went on until it was over.

    ``traffic``: bytes sent, by kind. ``ages``: values read across intervals, by age in epochs; empty where all are of
    their own epoch. ``waits``: how often an interval stood at the staleness bound. ``servers``: those in processes of
    their own. ``moved``: bytes between memory and files, under a memory limit.
    """

    loss: float
    seconds: float
    spans: list[Span]
    deliveries: list[Delivery] = field(default_factory=list)
    traffic: Mapping[str, int] = field(default_factory=dict)
    ages: Mapping[int, int] = field(default_factory=dict)
    waits: int = 0
    servers: Sequence[ServerReport] = ()
    moved: Moved | None = None

    def seconds_by_kind(self) -> dict[str, float]:
        """Thread-seconds spent on each kind of task."""
        spent: dict[str, float] = defaultdict(float)
        for span in self.spans:
            spent[str(span.task.kind)] += span.end_s - span.start_s
        return dict(spent)

    @cached_property
    def busy_seconds(self) -> dict[str, float]:
        """For how long at least one task was on the cores, one on the pool, one parcel on the network."""
        dense = [(span.start_s, span.end_s) for span in self.spans if span.task.kind in DENSE]
        sparse = [(span.start_s, span.end_s) for span in self.spans if span.task.kind not in DENSE]
        network = [(each.start_s, each.end_s) for each in self.deliveries]
        return {"cores": _covered(sparse), "pool": _covered(dense), "network": _covered(network)}

    def rows(self) -> list[list[object]]:
        """The spans as the run log has them: kind, step, interval, thread, start, end, server, epoch.

        Start and end are seconds since the first of them began; epochs count from 1.
        """
        start = min((span.start_s for span in self.spans), default=0.0)
        return [
            [
                str(s.task.kind), s.task.step, s.task.interval, s.thread,
                round(s.start_s - start, 7), round(s.end_s - start, 7), s.server, s.task.epoch + 1,
            ]
            for s in self.spans
        ]  # fmt: skip


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """How long at least one of the spans lasted."""
    total = reached = 0.0
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


class Cluster(Protocol):
    """Graph servers, parameter servers and their pool, wherever they live."""

    def train_epoch(self, permit: int | None = None, *, exact: bool = False) -> EpochReport:
        """Train until the next epoch is finished everywhere.

        ``permit``: the last epoch (from 0) that intervals running ahead may start meanwhile, that one if not given;
        when it is finished, no interval is in flight. ``exact``: from this epoch on, which nobody has started, epochs
        are synchronous.
        """

    def outputs(self, layer: int = -1, weights: Mapping[str, Tensor] | None = None) -> Outputs:
        """A layer's output for every vertex, in the graph's order, by an exact forward pass with one version of the
        weights: those given, or the latest."""

    def state(self) -> PSState:
        """Weights, optimiser and learning-rate schedule as they are now."""

    def restore(self, state: PSState) -> None:
        """Go on from such a state."""

    def close(self) -> None:
        """Stop all servers and the pool."""
