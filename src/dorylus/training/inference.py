"""What a trained program says of every vertex, by an exact forward pass over the whole graph."""

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.cluster import Job, LocalCluster
from dorylus.errors import ConfigError, unknown_name
from dorylus.graph import Graph
from dorylus.pools import ThreadsPool
from dorylus.saga import Program, Recipe, lower
from dorylus.training import checkpoint
from dorylus.training.assembly import bind, check_features, cut_graph, savings_of, threads_of
from dorylus.training.config import RunConfig
from dorylus.training.evaluation import classes_of
from dorylus.training.fingerprint import fingerprint
from dorylus.training.run_folder import RunFolder

WHAT = ("classes", "embeddings", "logits")


def predict(
    graph: Graph, program: Program, what: str = "logits", *, layer: int = -1, config: RunConfig | None = None
) -> NDArray[Any]:
    """Logits, classes, or a hidden layer's output (-1: the last hidden one), a row per vertex in the graph's order."""
    if what not in WHAT:
        raise ConfigError(unknown_name("prediction", what, WHAT))
    output = _hidden(program, layer) if what == "embeddings" else program.num_layers - 1
    check_features(program, graph)
    config = config or RunConfig()
    everyone = np.ones(graph.num_vertices, np.bool_)
    config = replace(config, servers=1, intervals=None)  # a forward pass in this process has no use for several
    plan = lower(
        program,
        sparse_features=graph.sparse_features,
        training=False,
        savings=savings_of(config),
        keep_rows=what == "embeddings",
    )
    job = Job(
        graph=graph,
        cut=cut_graph(graph, program, config, everyone),
        program=program,
        evaluation=plan,
        threads=threads_of(config),
        deadline_s=config.deadline_s,
        bf16=config.precision == "bf16",
    )
    cluster = LocalCluster(job, ThreadsPool())
    try:
        rows = cluster.outputs(output)
    finally:
        cluster.close()
    return classes_of(rows, graph.multilabel) if what == "classes" else rows


def _hidden(program: Program, layer: int) -> int:
    hidden = program.num_layers - 1
    if not -hidden <= layer < hidden:
        raise ConfigError(
            f"layer={layer}, but the model has {hidden} hidden layers: embeddings are the output of one of them, "
            f"0 to {hidden - 1} or counted back from -1."
            if hidden
            else "the model has one layer and no hidden one, so it has no embeddings: use logits."
        )
    return layer % hidden


def predict_from(
    run_dir: str | PathLike[str],
    what: str = "logits",
    layer: int = -1,
    *,
    graph: Graph | None = None,
    model: Recipe | Program | None = None,
) -> NDArray[Any]:
    """Predictions of a run's saved model: the best one where the run kept it, else the last checkpoint's."""
    folder = RunFolder.open(run_dir)
    graph = folder.spec.load_graph(download=False) if graph is None else graph
    program = bind(folder.spec.build_model() if model is None else model, graph, folder.config.seed)
    best = folder.config.keep == "best" and checkpoint.latest(Path(folder.best)) is not None
    state = checkpoint.load(
        folder.best if best else folder.checkpoints, fingerprint(dict(program.state_dict()), program.describe())
    )
    program.load_state_dict(state.weights)
    return predict(graph, program, what, layer=layer, config=folder.config)
