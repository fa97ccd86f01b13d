"""From graph, program and settings to the parts that run: layout, shard, plans."""

import os
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dorylus.errors import ConfigError, GraphError
from dorylus.graph import Graph, SparseFeatures, order
from dorylus.partition import Shard, check_intervals, choose_intervals, make_layout, needed_levels, settle_levels
from dorylus.saga import Layer, Plan, Program, Recipe, Savings, lower
from dorylus.saga.dense import IGNORED, Targets
from dorylus.saga.work import Work, measure
from dorylus.training.config import RunConfig

EDGES_PER_EDGE_TASK = 200_000  # an ApplyEdge holds several rows per edge: keep its intervals small


@dataclass(frozen=True, eq=False)
class Assembly:
    """A shard laid out for a program, and the plans that run over it."""

    shard: Shard
    training: Plan
    evaluation: Plan
    targets: Targets
    work: Work


def bind(model: Recipe | Program, graph: Graph, seed: int) -> Program:
    """The program a model becomes on this graph, a copy where it was one already; refuses one that does not fit."""
    if isinstance(model, Recipe):
        if graph.num_features == 0:
            raise GraphError(f"graph {graph.name!r} has no features: a model needs at least one column of them.")
        return model.build(graph.num_features, max(graph.num_classes, 1), seed=seed)
    if not isinstance(model, Program):
        raise ConfigError(f"model is a {type(model).__name__}: use dorylus.gcn(...) or another builder, or a Program.")
    check_features(model, graph)
    _check_width(graph, "classes", graph.num_classes, model.out_columns)
    for name, weight in model.named_parameters():
        if weight.dtype != torch.float32:
            raise ConfigError(f"{name} of the model is {weight.dtype}: weights are float32, so call .float() on it.")
    return deepcopy(model)


def check_features(program: Program, graph: Graph) -> None:
    """Refuse a graph whose vertices or features a program cannot take."""
    if graph.num_vertices == 0:
        raise GraphError(f"graph {graph.name!r} has no vertices: there is nothing to compute.")
    _check_width(graph, "features", graph.num_features, program.in_columns)


def _check_width(graph: Graph, what: str, has: int, wants: int) -> None:
    if has != wants:
        raise ConfigError(
            f"the model is made for {wants} {what}, but graph {graph.name!r} has {has}: build the model for {has}."
        )


def check_trainable(graph: Graph, config: RunConfig) -> None:
    """Refuse what is no graph, and a graph there is nothing to learn from."""
    if not isinstance(graph, Graph):
        raise ConfigError(f"graph is a {type(graph).__name__}: make a graph of it with dorylus.load or Graph.from_*.")
    if graph.labels is None or graph.num_classes == 0:
        raise GraphError(f"graph {graph.name!r} has no labels: training needs a label for every vertex of train_mask.")
    if not graph.train_mask.any():
        raise GraphError(
            f"graph {graph.name!r} has an empty train_mask: mark at least one labelled vertex for training."
        )
    if graph.val_mask.any():
        return
    asked = {"patience": config.patience, "target_accuracy": config.target_accuracy, "keep": config.keep}
    for name, value in asked.items():
        if value not in (None, "last"):
            raise ConfigError(
                f"{name}={value!r} looks at validation, but graph {graph.name!r} has an empty val_mask: mark some "
                f"vertices for validation, or leave {name} out."
            )


def check_finite(graph: Graph) -> None:
    """Refuse features that are not finite: a store's are not looked at until something went wrong."""
    features = graph.features
    values = features.values if isinstance(features, SparseFeatures) else features
    if not np.isfinite(values).all():
        raise GraphError(f"graph {graph.name!r} has features that are NaN or infinite: mend them, and store it again.")


def threads_of(config: RunConfig) -> int:
    """How many engine threads to use: all the cores this process may run on, unless told."""
    return config.threads or len(os.sched_getaffinity(0))


def savings_of(config: RunConfig) -> Savings:
    """Which exact savings are on."""
    return Savings(
        cache_first_gather=config.cache_first_gather,
        narrow_gather=config.narrow_gather,
        prune_rows=config.prune_rows,
    )


def assemble(graph: Graph, program: Program, config: RunConfig) -> Assembly:
    """Lay the graph out and lower the program for training and evaluation."""
    savings = savings_of(config)
    shard = make_shard(graph, program, config, graph.train_mask)
    sparse = graph.sparse_features
    training = lower(program, sparse_features=sparse, training=True, savings=savings)
    evaluation = lower(program, sparse_features=sparse, training=False, savings=savings)
    return Assembly(shard, training, evaluation, _targets(graph, config, shard), _work(training, shard))


def make_shard(graph: Graph, program: Program, config: RunConfig, wanted: NDArray[np.bool_]) -> Shard:
    """The graph in intervals; rows that reach no wanted vertex are put aside when pruning is on."""
    layers = program.num_layers
    if config.prune_rows:
        needed = needed_levels(graph.indptr, graph.indices, wanted, layers)
        deepest = settle_levels(needed, graph.in_degrees(), layers)
    else:
        deepest = np.full(graph.num_vertices, layers, np.int8)
    intervals = config.intervals or _intervals(graph, program, deepest, threads_of(config))
    check_intervals(intervals, graph.num_vertices)
    layout = make_layout(graph.in_degrees(), order(graph, config.reorder), deepest, layers, intervals)
    return Shard(graph, layout)


def _intervals(graph: Graph, program: Program, deepest: NDArray[np.int8], threads: int) -> int:
    """The number of intervals that suits the rows and edges training needs."""
    edges = int(graph.in_degrees()[deepest >= 1].sum())
    chosen = choose_intervals(int((deepest >= 0).sum()), edges, threads)
    if any(program.layer(index).has_apply_edge for index in range(program.num_layers)):
        chosen = max(chosen, edges // EDGES_PER_EDGE_TASK)
    return min(chosen, graph.num_vertices)


def _targets(graph: Graph, config: RunConfig, shard: Shard) -> Targets:
    assert graph.labels is not None
    loss = config.loss
    if loss == "auto":
        loss = "bce" if graph.multilabel else "cross_entropy"
    if (loss == "bce") != graph.multilabel:
        kind = "several labels" if graph.multilabel else "one label"
        raise ConfigError(f"loss={loss!r}, but vertices of graph {graph.name!r} have {kind} each: use loss='auto'.")
    count = int(graph.train_mask.sum())
    labels = graph.labels.astype(np.float32 if graph.multilabel else np.int64)  # a copy
    labels[~graph.train_mask] = IGNORED
    total = count * graph.num_classes if graph.multilabel else count
    return Targets(loss, torch.from_numpy(labels[shard.ids]), float(total))


def _work(plan: Plan, shard: Shard) -> Work:
    layout = shard.layout

    def edges(layer: Layer) -> int:
        return shard.adjacency(layer.edge_norm, layer.self_loops).num_edges

    def edges_into(layer: Layer, level: int) -> int:
        indptr = shard.adjacency(layer.edge_norm, layer.self_loops).indptr
        return int((indptr[layout.level_ends[level]] - indptr[layout.bounds[:-1]]).sum())

    return measure(plan, edges_into, edges)
