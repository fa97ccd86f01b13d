"""What a cluster is asked to do: everything its servers need to know, and nothing about where they live."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dorylus.backends import Backend, NativeBackend
from dorylus.memory import MemoryBounds, SpillSettings
from dorylus.partition import PartitionPlan, Shards, Source
from dorylus.saga import Plan

NamedParameters = list[tuple[str, nn.Parameter]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Training:
    """How a program is trained: its plan, what the loss compares with, and how weights are updated."""

    plan: Plan
    loss: str  # cross_entropy or bce
    loss_total: float  # by which the sum over all labelled vertices is divided
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
    """A program over a graph that is cut for so many servers; without ``training``, only to be evaluated."""

    graph: Source
    cut: PartitionPlan
    saved: Shards | None = None  # the same cut's shards on disk, where there are
    program: nn.Module
    evaluation: Plan
    training: Training | None = None
    threads: int = 1
    deadline_s: float = 600.0
    bf16: bool = False
    ghost_bf16: bool = False
    limited: SpillSettings | None = None
    bounded: MemoryBounds | None = None
    backend: Backend = field(default_factory=NativeBackend)  # for the array work of graph servers
