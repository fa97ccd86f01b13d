"""Training runs: settings, the trainer, evaluation, checkpoints, results, predictions."""

from dorylus.training.config import RunConfig
from dorylus.training.inference import predict, predict_from
from dorylus.training.result import Result
from dorylus.training.trainer import Trainer, resume, train

__all__ = ["Result", "RunConfig", "Trainer", "predict", "predict_from", "resume", "train"]
