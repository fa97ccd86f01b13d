"""Training runs: the trainer, evaluation, and results."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.training.assembly import (
        bind,
        check_features,
        check_graph,
        check_program,
        cut_graph,
        in_host_memory,
        memory_request,
        plan_memory,
        savings_of,
        threads_of,
    )
    from dorylus.training.evaluation import classes_of
    from dorylus.training.interrupt import terminable
    from dorylus.training.placement import check_backend
    from dorylus.training.result import Result
    from dorylus.training.trainer import Trainer, resume, train

__all__ = [
    "Result",
    "Trainer",
    "bind",
    "check_backend",
    "check_features",
    "check_graph",
    "check_program",
    "classes_of",
    "cut_graph",
    "in_host_memory",
    "memory_request",
    "plan_memory",
    "resume",
    "savings_of",
    "terminable",
    "threads_of",
    "train",
]

__getattr__ = lazy_names(
    __name__,
    {
        "assembly": "bind check_features check_graph check_program cut_graph in_host_memory memory_request plan_memory "
        "savings_of threads_of",
        "evaluation": "classes_of",
        "interrupt": "terminable",
        "placement": "check_backend",
        "result": "Result",
        "trainer": "Trainer resume train",
    },
)
