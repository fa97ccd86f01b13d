"""The seam between the trainer and the processes that train: the job, the reports, and the `Runtime` protocol.

A runtime owns the server processes of a run, wherever they are, and recovers the ones it loses. `LocalRuntime` keeps
all servers in this process; `RemoteRuntime` drives servers in processes of their own, which Ray places.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import add
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dorylus.backends import Backend
from dorylus.errors import TrainingError
from dorylus.memory import MemoryBounds, SpillSettings
from dorylus.paging import Moved
from dorylus.partition import PartitionPlan, Shards, VertexSource
from dorylus.pipeline import DENSE
from dorylus.pools import Invoked
from dorylus.runtime.engine import Span
from dorylus.saga import Plan
from dorylus.servers import PSState

Block = tuple[NDArray[np.int32], NDArray[np.float32]]  # vertices, and a row for each
NamedParameters = list[tuple[str, nn.Parameter]]
Note = Callable[..., None]  # (what, **details): one event of the servers or of a pool


@dataclass(frozen=True, eq=False, kw_only=True)
class Training:
    """How a program is trained: its plan, what the loss compares with, and how weights are updated."""

    plan: Plan
    loss: str  # cross_entropy or bce
    loss_total: float  # the sum over all labelled vertices is divided by this
    make_optimizer: Callable[[NamedParameters], Optimizer]
    make_lr_schedule: Callable[[Optimizer], LRScheduler | None]
    parameter_servers: int = 1
    mode: str = "pipe"
    staleness: int = 0
    update: str = "sync"
    seed: int = 0
    keep_graph: bool = True
    first_epoch: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """A program over a partitioned graph, independent of where servers are; without ``training``, for evaluation."""

    graph: VertexSource
    cut: PartitionPlan
    saved: Shards | None = None  # the shards of the same partition on disk, if there are any
    program: nn.Module
    evaluation: Plan
    backend: Backend  # for the array work of graph servers
    training: Training | None = None
    threads: int = 1
    deadline_s: float = 600.0
    bf16: bool = False
    ghost_bf16: bool = False
    limited: SpillSettings | None = None
    bounded: MemoryBounds | None = None


@dataclass(frozen=True)
class Outputs:
    """Rows of a layer's output. ``blocks`` yields every vertex once; a block's rows are valid until the next block."""

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
    """Servers of a run have ended or cannot be reached. The run can continue once they are restarted."""


class NotRevivedError(ServersLostError):
    """Servers that were lost did not come back in time."""


class EpochDroppedError(TrainingError):
    """The epoch or evaluation in progress was dropped. The state is that of the last finished epoch."""


def total_loss(parts: Mapping[int, float]) -> float:
    """The loss of an epoch: the parts of its intervals, added in interval order.

    Not by ``sum``: from Python 3.12 on it compensates rounding, and a run has the same bits on every Python.
    """
    return reduce(add, (parts[interval] for interval in sorted(parts)), 0.0)


class Delivery(NamedTuple):
    """When a ghost message travelled from one server to another."""

    server: int
    peer: int
    num_bytes: int
    start_s: float
    end_s: float


class ServerReport(NamedTuple):
    """One epoch of a graph server that has a process of its own.

    ``sent_bytes`` went to other graph servers since the last report, evaluations included, as the sockets count them.
    """

    server: int
    host: str
    seconds: float
    sent_bytes: int
    memory_bytes: int
    peak_memory_bytes: int


@dataclass(frozen=True)
class EpochReport:
    """What one epoch of training did.

    ``traffic``: bytes sent, by kind. ``ages``: values read across intervals, by age in epochs; empty where all are of
    their own epoch. ``waits``: how often an interval waited at the staleness bound. ``servers``: those in processes of
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
        """For how long at least one task ran on the cores, one on the pool, one ghost message on the network."""
        dense = [(span.start_s, span.end_s) for span in self.spans if span.task.kind in DENSE]
        sparse = [(span.start_s, span.end_s) for span in self.spans if span.task.kind not in DENSE]
        network = [(each.start_s, each.end_s) for each in self.deliveries]
        return {"cores": _covered(sparse), "pool": _covered(dense), "network": _covered(network)}

    def rows(self) -> list[list[object]]:
        """The spans as rows of the run log: kind, step, interval, thread, start, end, server, epoch.

        Start and end are seconds since the first span began; epochs count from 1.
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


@dataclass(frozen=True)
class PoolNews:
    """What a pool has done since the last report: its notes for the run log, and every invocation."""

    notes: list[tuple[str, dict[str, Any]]]
    invoked: list[Invoked]


class Runtime(Protocol):
    """The graph servers, parameter servers and pools of a run, wherever their processes are."""

    def ready(self) -> None:
        """Wait until all servers can train."""

    def train_epoch(self, permit: int | None = None, exact_from: int | None = None) -> EpochReport:
        """Train until every server has finished the next epoch.

        ``permit`` is the last epoch (from 0) that intervals running ahead may start during the call; by default the
        epoch itself. When the permitted epoch is finished, no interval is in flight. ``exact_from`` is the epoch from
        which on all are exact, once a run has decided that (``RunProgress.exact_from``); no interval has started it.
        """

    def outputs(self, layer: int = -1, weights: Mapping[str, Tensor] | None = None) -> Outputs:
        """A layer's output for every vertex, in the graph's order, by an exact forward pass with one version of the
        weights: the given one, or the latest."""

    def state(self) -> PSState:
        """The current weights, optimiser state and learning-rate schedule."""

    def restore(self, state: PSState) -> None:
        """Continue from a state."""

    def drop_epoch(self) -> None:
        """Drop the epoch or evaluation in progress, from any thread: it ends with :class:`EpochDroppedError`."""

    def settle(self) -> None:
        """Wait until the pools have answered every call, so that every invocation is counted."""

    def figures(self) -> Mapping[str, Any]:
        """The figures of the pools so far."""

    def peaks(self) -> list[int]:
        """The peak memory of each graph server that has a process of its own, in bytes."""

    def close(self) -> None:
        """Stop all servers and pools."""
