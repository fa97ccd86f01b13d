"""Predictions of a trained program for every vertex, by an exact forward pass over the whole graph."""

from contextlib import closing
from os import PathLike
from typing import Any, overload

from numpy.typing import NDArray

from dorylus.backends import Backend
from dorylus.config import RunConfig
from dorylus.graph import Graph
from dorylus.inference.prediction_file import (
    PredictionFile,
    PredictionTable,
    ReportRows,
    Written,
    check_target,
    original_ids,
)
from dorylus.inference.prediction_pass import PredictionPass, for_one_process
from dorylus.runs import CheckpointStore, RunFolder, checkpoint, fingerprint_of
from dorylus.saga import Program, Recipe
from dorylus.training import bind, check_backend, check_graph, check_program

PathLikeText = str | PathLike[str]


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
    """Logits, classes, or a hidden layer's output (-1: the last hidden one), a row per vertex in the graph's order.

    With ``out``, a .npy or .parquet file, rows are written there while they are computed, with the original ids of the
    graph; ``tell(done, total)`` is called with the progress. "table" is the class of every vertex with its probability,
    as a structured array or, in a .parquet or .csv file, with ids and class names (see :func:`predict_table`).
    ``memory`` and ``scratch_dir`` default to those of ``config``. ``backend`` does the array work: native unless given.
    """
    check_graph(graph)
    check_program(program)
    settings = for_one_process(config or RunConfig(), memory, scratch_dir)
    backend = check_backend(backend, settings)
    return _predict(PredictionPass(graph, program, what, layer, settings, backend), what, out, tell, graph)


def predict_table(graph: Graph, program: Program, **options: Any) -> Any:
    """A pyarrow.Table with the id, class and probability of every vertex, in the graph's order.

    Classes are names where the graph has them, else numbers. Where a vertex may have several labels, there is a column
    with the probability of each. ``options`` are those of :func:`predict`.
    """
    rows = predict(graph, program, "table", **options)
    columns = rows.shape[1] if rows.ndim == 2 else None
    return PredictionTable(original_ids(graph), graph.class_names, columns).rows(rows, 0)


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

    The other arguments are those of :func:`predict`.
    """
    folder = RunFolder.open(run_dir)
    settings = for_one_process(folder.config, memory, scratch_dir)
    backend = check_backend(backend, settings)
    if out is not None:
        check_target(out, what)  # before the graph is loaded
    saved = CheckpointStore(folder).of_result(best=folder.config.kept == "best")
    if isinstance(model, Program):
        checkpoint.check(saved.parent, fingerprint_of(model))  # before the graph is loaded
    graph = folder.load_graph() if graph is None else graph
    program = bind(folder.spec.build_model() if model is None else model, graph, folder.config.seed)
    state = checkpoint.load(saved, fingerprint_of(program))
    program.load_state_dict(state.weights)
    return _predict(PredictionPass(graph, program, what, layer, settings, backend), what, out, tell, graph)


def _predict(
    prediction: PredictionPass, what: str, out: PathLikeText | None, tell: ReportRows | None, graph: Graph
) -> NDArray[Any] | Written:
    if out is None:
        return prediction.array()
    table = PredictionTable.of(graph, prediction.form) if what == "table" else None
    with (
        closing(PredictionFile(out, prediction.form, what, original_ids(graph), table)) as file,
        prediction.blocks() as blocks,
    ):
        return file.write(blocks, tell)
