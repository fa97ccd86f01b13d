"""The result of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from dorylus import units
from dorylus.backends import Backend
from dorylus.config import RunConfig
from dorylus.cost import Bill, dollars
from dorylus.graph import Graph, html_table
from dorylus.inference import Written
from dorylus.runs import RunProgress, TrainedOn
from dorylus.saga import Program, Work
from dorylus.training.evaluation import Evaluation

if TYPE_CHECKING:
    from dorylus.inference import PredictionRequest


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A trained model and the record of its training.

    ``losses[k]`` is the loss of the weights before step k; ``epoch_seconds`` leave evaluation out. Scores are those of
    the weights in ``model``, from one exact forward pass; ``metrics`` has all of them (F1 too) by name.

    ``peak_memory_bytes`` are this process's, ``server_peak_memory_bytes`` those of graph servers that have their own.
    ``traffic``: bytes sent between servers, by kind. ``ages``: how many values were read across intervals at each age
    (the reader's epoch less the writer's; asynchronous runs only). ``busy``: the share of the time in epochs in which
    cores, pool and network each had work. ``waits``: how often an interval waited at the staleness bound. ``pool``:
    figures of the functions: invocations, bytes, relaunches, duplicates; empty for threads. ``bill``: what it cost,
    itemised, priced for ``config.instance`` or the type nearest to this machine. ``best_epoch`` had the best
    score on validation, ``best_score``, of all evaluations; None where there was none. With ``config.keep`` "best" its
    weights are those in ``model``, otherwise those of the last epoch are. ``backend`` did the array work, and
    does that of :meth:`predict`. ``history``: a column for each of epoch, loss, seconds, usd (spent so far) and the
    scores of evaluations, with a row an epoch; None where it was not evaluated. Any data frame takes it:
    ``pandas.DataFrame(result.history)``.
    """

    model: Program
    losses: list[float]
    epoch_seconds: list[float]
    metrics: Mapping[str, float]
    peak_memory_bytes: int
    server_peak_memory_bytes: list[int]
    work: Work
    traffic: Mapping[str, int]
    ages: Mapping[int, int]
    busy: Mapping[str, float]
    waits: int
    bill: Bill
    pool: Mapping[str, Any]
    stopped: str
    config: RunConfig
    graph: Graph
    backend: Backend | None = None
    history: Mapping[str, list[Any]] = field(default_factory=dict)
    best_epoch: int | None = None
    best_score: float | None = None

    @classmethod
    def of(cls, progress: RunProgress, **others: Any) -> Self:
        """The result of a run with this progress; ``others`` are the fields that are not in its progress."""
        return cls(
            losses=list(progress.losses),
            epoch_seconds=list(progress.epoch_seconds),
            traffic=dict(progress.traffic),
            ages={int(age): count for age, count in sorted(progress.ages.items(), key=lambda item: int(item[0]))},
            busy={name: spent / max(1e-9, progress.busy_wall_s) for name, spent in progress.busy_seconds.items()},
            waits=progress.waits,
            stopped=progress.stopped or "not yet",
            best_epoch=progress.best_epoch,
            best_score=progress.best_score,
            history=progress.history(),
            **others,
        )

    @property
    def test_accuracy(self) -> float:
        """Accuracy on the test vertices; NaN when there are none."""
        return self.metrics.get("test_accuracy", float("nan"))

    @property
    def val_accuracy(self) -> float:
        """Accuracy on the validation vertices; NaN when there are none."""
        return self.metrics.get("val_accuracy", float("nan"))

    @property
    def train_accuracy(self) -> float:
        """Accuracy on the training vertices."""
        return self.metrics.get("train_accuracy", float("nan"))

    @property
    def seconds(self) -> float:
        """Time spent in epochs."""
        return sum(self.epoch_seconds)

    @overload
    def predict(
        self,
        what: str = "logits",
        *,
        graph: Graph | None = None,
        layer: int = -1,
        memory: str | int | None = None,
        scratch_dir: str | PathLike[str] | None = None,
        out: None = None,
    ) -> NDArray[Any]: ...
    @overload
    def predict(
        self,
        what: str = "logits",
        *,
        graph: Graph | None = None,
        layer: int = -1,
        memory: str | int | None = None,
        scratch_dir: str | PathLike[str] | None = None,
        out: str | PathLike[str],
    ) -> Written: ...
    def predict(
        self,
        what: str = "logits",
        *,
        graph: Graph | None = None,
        layer: int = -1,
        memory: str | int | None = None,
        scratch_dir: str | PathLike[str] | None = None,
        out: str | PathLike[str] | None = None,
    ) -> NDArray[Any] | Written:
        """Logits, classes, probabilities or embeddings (a layer's output) of every vertex, in the graph's own order.

        With ``out``, a .npy or .parquet file, they are written there while they are computed. "table" is the class of
        every vertex with its probability, in a .parquet or .csv file with ids and class names. ``graph``: another graph
        with the same features. ``memory`` and ``scratch_dir`` are the run's unless given.
        """
        return self._request(graph, memory, scratch_dir).predict(what, layer, out)

    def predict_table(
        self,
        *,
        graph: Graph | None = None,
        memory: str | int | None = None,
        scratch_dir: str | PathLike[str] | None = None,
    ) -> Any:
        """A pyarrow.Table with the id, class and probability of every vertex, in the graph's order.

        Classes are names where the training graph has them, else numbers. ``.to_pandas()`` converts it.
        """
        return self._request(graph, memory, scratch_dir).table()

    def evaluate(
        self,
        *,
        graph: Graph | None = None,
        memory: str | int | None = None,
        scratch_dir: str | PathLike[str] | None = None,
    ) -> Evaluation:
        """Scores of every split and class, and which classes are confused; ``graph``: another one with labels."""
        return self._request(graph, memory, scratch_dir).evaluate()

    def _request(
        self, graph: Graph | None, memory: str | int | None, scratch_dir: str | PathLike[str] | None
    ) -> "PredictionRequest":
        from dorylus.inference import PredictionRequest

        trained_on = None if graph is None else TrainedOn.of(self.graph)
        how: dict[str, Any] = {"memory": memory, "scratch_dir": scratch_dir, "backend": self.backend}
        return PredictionRequest.of(graph or self.graph, self.model, trained_on, config=self.config, **how)

    def __repr__(self) -> str:
        rows = self._rows()
        wide = max(map(len, rows))
        lines = (f"  {name:{wide}}  {' '.join(value.split())}" for name, value in rows.items())
        return "\n".join(["Result", *lines])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return html_table("Result", self._rows())

    def _rows(self) -> dict[str, str]:
        """What is worth a line, by name."""
        weights = sum(each.numel() for each in self.model.parameters())
        epochs, config = len(self.losses), self.config
        best = config.keep == "best" and self.best_epoch not in (None, epochs)
        kept = f"; weights of epoch {self.best_epoch}, the best on validation" if best else ""
        rows = {
            "graph": f"{self.graph.name}: {self.graph.num_vertices:,} vertices, {self.graph.num_edges:,} edges",
            "model": f"{self.model.num_layers} layers, {weights:,} weights",
            "epochs": f"{epochs} in {units.seconds(self.seconds)}, stopped by: {self.stopped}{kept}",
            "loss": f"{units.number(self.losses[0])} -> {units.number(self.losses[-1])}" if epochs else "",
        }
        score = "micro_f1" if self.graph.multilabel else "accuracy"
        for split in ("train", "val", "test"):
            rows[f"{split} {score.replace('_', ' ')}"] = units.percent(self.metrics.get(f"{split}_{score}"))
        rows["memory"] = units.size(self.peak_memory_bytes) + " at the worst moment"
        rows["cost"] = dollars(self.bill.total_usd)
        inexact = {"mode": config.mode, "precision": config.precision, "ghost_precision": config.ghost_precision}
        approximate = ", ".join(f"{name}={value}" for name, value in inexact.items() if value in ("async", "bf16"))
        rows |= {"approximate": approximate, "run folder": config.run_dir or ""}
        return {name: value for name, value in rows.items() if value and value != units.percent(None)}

    def summary(self) -> dict[str, Any]:
        """The figures, as plain data."""
        return {
            **{name: round(score, 6) for name, score in self.metrics.items()},
            "epochs": len(self.losses),
            "final_loss": self.losses[-1] if self.losses else None,
            "seconds": self.seconds,
            "seconds_per_epoch": float(np.median(self.epoch_seconds)) if self.epoch_seconds else None,
            "peak_memory_bytes": self.peak_memory_bytes,
            "server_peak_memory_bytes": self.server_peak_memory_bytes,
            "work": str(self.work),
            "work_done": self.work.done,
            "work_naive": self.work.naive,
            "precision": self.config.precision,
            "ghost_precision": self.config.ghost_precision,
            "mode": self.config.mode,
            "staleness": self.config.staleness,
            "servers": self.config.servers,
            "traffic": dict(self.traffic),
            "ages": {str(age): count for age, count in self.ages.items()},
            "busy": {name: round(share, 4) for name, share in self.busy.items()},
            "waits": self.waits,
            "bill": self.bill.to_dict(),
            "pool": dict(self.pool),
            "stopped": self.stopped,
            "keep": self.config.kept,
            "best_epoch": self.best_epoch,
            "best_score": None if self.best_score is None else round(self.best_score, 6),
        }
