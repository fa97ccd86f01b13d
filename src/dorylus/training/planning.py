"""What a run would take, before it is begun."""

from typing import Any

from dorylus.graph import Graph
from dorylus.saga import Program, Recipe, lower
from dorylus.training.assembly import bind, check_classes, savings_of, threads_of
from dorylus.training.config import RunConfig
from dorylus.training.limits import Asked, MemoryPlan, memory_plan
from dorylus.training.optim import make_optimizer

TO_LOAD = 12 << 20  # what `dorylus train` has loaded beside what a process has that only plans


def plan_memory(graph: Graph, model: Recipe | Program, **settings: Any) -> MemoryPlan:
    """The bytes a training run holds by kind, in memory and in files, and whether that fits.

    Settings are those of ``train``; without ``memory``, the limit is what this machine has free.
    """
    config = RunConfig.of(**settings)
    check_classes(graph)
    program = bind(model, graph, config.seed)
    make_optimizer(config, list(program.named_parameters()))  # as a run does: what torch loads for it is memory too
    plans = [
        lower(program, sparse_features=graph.sparse_features, training=training, savings=savings_of(config))
        for training in (True, False)
    ]
    return memory_plan(Asked(graph, plans[0], plans[1], config, threads_of(config), TO_LOAD))
