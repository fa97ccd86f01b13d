"""Predictions of a trained program for every vertex, by an exact forward pass over the whole graph, and their scores.

The graph is the one that the program was trained on, or another with the same features (:class:`PredictionRequest`
brings both together).
"""

from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self, overload

from numpy.typing import NDArray

from dorylus.backends import Backend
from dorylus.config import RunConfig
from dorylus.graph import Graph
from dorylus.inference.prediction_file import (
    TABLES,
    PredictionFile,
    PredictionTable,
    ReportRows,
    Written,
    check_target,
    original_ids,
)
from dorylus.inference.prediction_pass import PredictionPass, for_one_process
from dorylus.runs import CheckpointStore, RunFolder, TrainedOn, checkpoint, fingerprint_of
from dorylus.saga import Program, Recipe
from dorylus.training import Evaluation, bind, check_backend, check_graph, check_program

PathLikeText = str | PathLike[str]


@dataclass(frozen=True, eq=False)
class PredictionRequest:
    """A program, a graph that fits it, what it knows of the graph it was trained on, and how to compute."""

    graph: Graph
    program: Program
    trained_on: TrainedOn
    config: RunConfig
    backend: Backend

    @classmethod
    def of(
        cls,
        graph: Graph,
        program: Program,
        trained_on: TrainedOn | None = None,
        *,
        config: RunConfig | None = None,
        memory: str | int | None = None,
        scratch_dir: PathLikeText | None = None,
        backend: Backend | None = None,
    ) -> Self:
        """Of objects; without ``trained_on``, the program was trained on this graph."""
        check_graph(graph)
        check_program(program)
        settings = for_one_process(config or RunConfig(), memory, scratch_dir)
        backend = check_backend(backend, settings)
        if trained_on is None:
            return cls(graph, program, TrainedOn.of(graph), settings, backend)
        return cls(trained_on.fitted(graph, settings.memory), program, trained_on, settings, backend)

    @classmethod
    def from_run(
        cls,
        run_dir: PathLikeText,
        *,
        graph: Graph | None = None,
        model: Recipe | Program | None = None,
        memory: str | int | None = None,
        scratch_dir: PathLikeText | None = None,
        backend: Backend | None = None,
        out: PathLikeText | None = None,
        what: str = "logits",
    ) -> Self:
        """Of a run's saved model: that of the best epoch where the run keeps it, else the last.

        Its own graph is loaded again unless one is given, and refused if it has changed.
        """
        folder = RunFolder.open(run_dir)
        settings = for_one_process(folder.config, memory, scratch_dir)
        backend = check_backend(backend, settings)
        if out is not None:
            check_target(out, what)  # before the graph is loaded
        if graph is not None:
            check_graph(graph)
        saved = CheckpointStore(folder).of_result(best=folder.config.kept == "best")
        if isinstance(model, Program):
            checkpoint.check(saved.parent, fingerprint_of(model))  # before the graph is loaded
        recipe = folder.spec.build_model() if model is None else model
        trained_on = TrainedOn.read(folder)
        if graph is None:
            graph = folder.load_graph()
            if trained_on is not None:
                trained_on.check_unchanged(graph, folder.path)
        if trained_on is None:
            trained_on = TrainedOn.of(graph)
        else:
            graph = trained_on.fitted(graph, settings.memory)
        program = bind(recipe, trained_on, folder.config.seed)
        program.load_state_dict(checkpoint.load(saved, fingerprint_of(program)).weights)
        return cls(graph, program, trained_on, settings, backend)

    def predict(
        self, what: str, layer: int = -1, out: PathLikeText | None = None, tell: ReportRows | None = None
    ) -> NDArray[Any] | Written:
        """Predictions as an array, or written to ``out``."""
        forward = self._pass(what, layer)
        if out is None:
            return forward.array()
        in_columns = what == "table" or (what == "probabilities" and Path(out).suffix in TABLES)
        table = self._table(forward.form.columns) if in_columns else None
        with (
            closing(PredictionFile(out, forward.form, what, original_ids(self.graph), table)) as file,
            forward.blocks() as blocks,
        ):
            return file.write(blocks, tell)

    def table(self) -> Any:
        """A pyarrow.Table of ids, classes and probabilities."""
        forward = self._pass("table", -1)
        return self._table(forward.form.columns).rows(forward.array(), 0)

    def evaluate(self) -> Evaluation:
        """Scores against the labels of the graph."""
        labels = self.trained_on.labels_of(self.graph)
        with self._pass("logits", -1).blocks() as blocks:
            return Evaluation.of(self.graph, labels, self.trained_on, blocks)

    def _pass(self, what: str, layer: int) -> PredictionPass:
        several = self.trained_on.multilabel
        return PredictionPass(self.graph, self.program, what, layer, self.config, self.backend, several=several)

    def _table(self, columns: int | None) -> PredictionTable:
        return PredictionTable(original_ids(self.graph), self.trained_on.class_names, columns)


@overload
def predict(
    graph: Graph,
    program: Program,
    what: str = "logits",
    *,
    layer: int = -1,
    config: RunConfig | None = None,
    memory: str | int | None = None,
    scratch_dir: PathLikeText | None = None,
    backend: Backend | None = None,
    out: None = None,
    tell: ReportRows | None = None,
) -> NDArray[Any]: ...
@overload
def predict(
    graph: Graph,
    program: Program,
    what: str = "logits",
    *,
    layer: int = -1,
    config: RunConfig | None = None,
    memory: str | int | None = None,
    scratch_dir: PathLikeText | None = None,
    backend: Backend | None = None,
    out: PathLikeText,
    tell: ReportRows | None = None,
) -> Written: ...
def predict(
    graph: Graph,
    program: Program,
    what: str = "logits",
    *,
    layer: int = -1,
    config: RunConfig | None = None,
    memory: str | int | None = None,
    scratch_dir: PathLikeText | None = None,
    backend: Backend | None = None,
    out: PathLikeText | None = None,
    tell: ReportRows | None = None,
) -> NDArray[Any] | Written:
    """What the program computes for every vertex, a row each in the graph's order.

    ``what`` is "logits"; "classes", the number of the likeliest class, or zeros and ones for several labels;
    "probabilities", the softmax, or the sigmoid for several labels; or "embeddings", the output of a hidden ``layer``
    (-1: the last). "table" is the class of every vertex with its probability, as a structured array or, in a .parquet
    or .csv file, with ids and class names (see :func:`predict_table`).

    With ``out``, a .npy or .parquet file, rows are written there while they are computed, with the original ids of the
    graph; ``tell(done, total)`` is called with the progress. ``memory`` and ``scratch_dir`` default to those of
    ``config``. ``backend`` does the array work: native unless given.
    """
    how: dict[str, Any] = {"config": config, "memory": memory, "scratch_dir": scratch_dir, "backend": backend}
    return PredictionRequest.of(graph, program, **how).predict(what, layer, out, tell)


def predict_table(graph: Graph, program: Program, **options: Any) -> Any:
    """A pyarrow.Table with the id, class and probability of every vertex, in the graph's order.

    Classes are names where the training graph has them, else numbers. Where a vertex may have several labels, there is
    a column with the probability of each. ``options`` are those of :func:`predict`.
    """
    return PredictionRequest.of(graph, program, **options).table()


@overload
def predict_from(
    run_dir: PathLikeText,
    what: str = "logits",
    layer: int = -1,
    *,
    graph: Graph | None = None,
    model: Recipe | Program | None = None,
    memory: str | int | None = None,
    scratch_dir: PathLikeText | None = None,
    backend: Backend | None = None,
    out: None = None,
    tell: ReportRows | None = None,
) -> NDArray[Any]: ...
@overload
def predict_from(
    run_dir: PathLikeText,
    what: str = "logits",
    layer: int = -1,
    *,
    graph: Graph | None = None,
    model: Recipe | Program | None = None,
    memory: str | int | None = None,
    scratch_dir: PathLikeText | None = None,
    backend: Backend | None = None,
    out: PathLikeText,
    tell: ReportRows | None = None,
) -> Written: ...
def predict_from(
    run_dir: PathLikeText,
    what: str = "logits",
    layer: int = -1,
    *,
    graph: Graph | None = None,
    model: Recipe | Program | None = None,
    memory: str | int | None = None,
    scratch_dir: PathLikeText | None = None,
    backend: Backend | None = None,
    out: PathLikeText | None = None,
    tell: ReportRows | None = None,
) -> NDArray[Any] | Written:
    """Predictions of a run's saved model: that of the best epoch where the run keeps it, else the last.

    ``graph`` may be another one with the same features: of any size, with or without labels. Where both have names of
    features, columns are matched by name. The other arguments are those of :func:`predict`.
    """
    how: dict[str, Any] = {"memory": memory, "scratch_dir": scratch_dir, "backend": backend}
    request = PredictionRequest.from_run(run_dir, graph=graph, model=model, out=out, what=what, **how)
    return request.predict(what, layer, out, tell)


def evaluate_from(
    run_dir: PathLikeText,
    *,
    graph: Graph | None = None,
    model: Recipe | Program | None = None,
    memory: str | int | None = None,
    scratch_dir: PathLikeText | None = None,
    backend: Backend | None = None,
) -> Evaluation:
    """Scores of a run's saved model, as :func:`predict_from` takes it, on the labels of its graph or of another."""
    how: dict[str, Any] = {"memory": memory, "scratch_dir": scratch_dir, "backend": backend}
    return PredictionRequest.from_run(run_dir, graph=graph, model=model, **how).evaluate()
