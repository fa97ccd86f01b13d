"""What a cluster is asked to do: everything its servers need to know, and nothing about where they live."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dorylus.partition import Cut, Shards
from dorylus.partition.edges import Source
from dorylus.saga.lower import Plan
from dorylus.servers.holding import Holding

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


@dataclass(frozen=True, kw_only=True)
class Limited:
    """How a job keeps a memory limit: what lies in files, in which folder, and how features are first gathered."""

    scratch: str
    holding: Holding
    static_blocks: int = 1


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """How a job that has nothing in files keeps a memory limit: bytes that the process and its matrices are to take.

    Free memory counts: matrices keep no more of it than ``matrices`` leaves, the rest no more than ``process`` does.
    """

    matrices: int
    process: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """A program over a graph that is cut for so many servers; without ``training``, only to be evaluated."""

    graph: Source
    cut: Cut
    saved: Shards | None = None  # the same cut's shards on disk, where there are
    program: nn.Module
    evaluation: Plan
    training: Training | None = None
    threads: int = 1
    deadline_s: float = 600.0
    bf16: bool = False
    ghost_bf16: bool = False
    limited: Limited | None = None
    bounded: Bounded | None = None
