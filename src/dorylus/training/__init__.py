"""Training runs: settings, the trainer, evaluation, checkpoints, results, predictions."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dorylus.training.config import RunConfig
    from dorylus.training.inference import predict, predict_from
    from dorylus.training.planning import plan_memory
    from dorylus.training.result import Result
    from dorylus.training.trainer import Trainer, resume, train

__all__ = ["Result", "RunConfig", "Trainer", "plan_memory", "predict", "predict_from", "resume", "train"]

_HOME_OF = {
    "Result": "result", "RunConfig": "config", "Trainer": "trainer",
    "plan_memory": "planning", "predict": "inference", "predict_from": "inference",
    "resume": "trainer", "train": "trainer",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Loaded when first used: settings and run folders need no torch."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dorylus.training' has no attribute {name!r}")
    return getattr(import_module(f"dorylus.training.{_HOME_OF[name]}"), name)
