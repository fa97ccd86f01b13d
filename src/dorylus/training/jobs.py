"""The job a cluster is given, from the parts and settings of a run."""

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dorylus.cluster import Job, Training
from dorylus.graph import Graph
from dorylus.saga import Program
from dorylus.training.assembly import Assembly, threads_of
from dorylus.training.config import RunConfig


def training_job(
    graph: Graph,
    program: Program,
    parts: Assembly,
    config: RunConfig,
    make_optimizer: Callable[[Any], Optimizer],
    make_lr_schedule: Callable[[Optimizer], LRScheduler | None],
    first_epoch: int = 0,
) -> Job:
    """Train a program on a graph from an epoch on, by these settings."""
    training = Training(
        plan=parts.training,
        loss=parts.loss,
        loss_total=parts.loss_total,
        make_optimizer=make_optimizer,
        make_lr_schedule=make_lr_schedule,
        parameter_servers=config.parameter_servers,
        mode=config.mode,
        staleness=config.staleness,
        update=config.weight_update,
        seed=config.seed,
        keep_graph=(parts.limits is None or parts.limits.limited is None)
        and not config.rematerialize,  # pools that rematerialise keep nothing
        first_epoch=first_epoch,
    )
    return Job(
        graph=graph,
        cut=parts.cut,
        saved=parts.saved,
        program=program,
        evaluation=parts.evaluation,
        training=training,
        threads=threads_of(config),
        deadline_s=config.deadline_s,
        bf16=config.precision == "bf16",
        ghost_bf16=config.ghost_precision == "bf16",
        limited=None if parts.limits is None else parts.limits.limited,
        bounded=None if parts.limits is None else parts.limits.bounded,
    )
