"""MLflow: a run in the experiment that MLFLOW_EXPERIMENT_NAME names, or ``dorylus``, on the server that
MLFLOW_TRACKING_URI names."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dorylus.runs.loggers import EpochFigures, LoggedRun

MOST_PARAMS, MOST_METRICS = 100, 1000  # of one request
LONGEST_PARAM = 500  # characters


def open_mlflow(run: LoggedRun) -> "MlflowLogger":
    """Goes on with the run that was logged before, or begins one."""
    return MlflowLogger(run)


class MlflowLogger:
    """Logs settings as parameters, figures as metrics, and the result as metrics ``final_...`` and tags."""

    def __init__(self, run: LoggedRun) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient()
        self.last_step = 0
        if run.run_id is None:
            begun = self._client.create_run(self._experiment(), run_name=run.name)
        else:
            begun = self._client.get_run(run.run_id)
            self._client.set_terminated(run.run_id, status="RUNNING")
            losses = self._client.get_metric_history(run.run_id, "loss")
            self.last_step = max((each.step for each in losses), default=0)
        self.run_id: str = begun.info.run_id
        # A parameter cannot be changed: a resumed run keeps those that it had.
        self._log_params({name: value for name, value in run.settings.items() if name not in begun.data.params})

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "dorylus")
        known = self._client.get_experiment_by_name(name)
        experiment: str = self._client.create_experiment(name) if known is None else known.experiment_id
        return experiment

    def _log_params(self, settings: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        params = [Param(name, str(value)[:LONGEST_PARAM]) for name, value in settings.items()]
        for first in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(self.run_id, params=params[first : first + MOST_PARAMS])

    def log(self, steps: Sequence[EpochFigures]) -> None:
        """Logs a metric for each figure, in few requests."""
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        metrics = [Metric(name, value, now_ms, step) for step, figures in steps for name, value in figures.items()]
        for first in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self.run_id, metrics=metrics[first : first + MOST_METRICS])

    def summarise(self, figures: Mapping[str, Any]) -> None:
        """Logs the figures of the result."""
        texts = {name: value for name, value in figures.items() if isinstance(value, str)}
        numbers = {f"final_{name}": float(value) for name, value in figures.items() if name not in texts}
        self.log([(self.last_step, numbers)])
        for name, text in texts.items():
            self._client.set_tag(self.run_id, name, text)

    def close(self, *, finished: bool) -> None:
        """Ends the run."""
        self._client.set_terminated(self.run_id, status="FINISHED" if finished else "KILLED")
