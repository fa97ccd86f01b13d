"""From graph, program and settings to the parts of a run: the partition, the plans, the loss, and the memory plan."""

import os
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import Module

from dorylus import process_memory
from dorylus.backends import Backend, HostBackend
from dorylus.config import AllSettings, RunConfig, lists_settings
from dorylus.errors import ConfigError, GraphError, given, kind_of, unknown_value
from dorylus.graph import Graph, SparseFeatures, converter_of, has_self_loop, is_remote, vertex_order
from dorylus.memory import EDGES_PER_EDGE_TASK, MemoryPlan, RunLimits, RunRequest, check_room, limits, memory_plan
from dorylus.partition import (
    METHODS,
    PartitionPlan,
    Shards,
    choose_intervals,
    make_partition_plan,
    make_partitioning,
    needed_levels,
    open_shards,
    plain_partition_plan,
    settle_levels,
)
from dorylus.pools import POOLS
from dorylus.runs import TrainedOn
from dorylus.saga import (
    BUILDERS,
    Gather,
    Layer,
    Plan,
    Program,
    Recipe,
    Savings,
    Work,
    check_bodies,
    lower,
    measure,
)
from dorylus.training.optim import make_optimizer
from dorylus.units import format_bytes

MOST_CLASSES = 1 << 20  # or as many as vertices: more are numbers with gaps, and the last layer has a column for each
MANY_CLASSES, PRESENT = 10_000, 100  # of more than so many classes, one in so many has a vertex
BYTES_A_WEIGHT = 20  # itself, the version that is read, its gradient, two moments


@dataclass(frozen=True, eq=False)
class RunParts:
    """A graph cut for a program, and the plans that run over it."""

    cut: PartitionPlan
    saved: Shards | None
    training: Plan
    evaluation: Plan
    loss: str
    loss_total: float  # the sum over all labelled vertices is divided by this
    work: Work
    keeps_graphs: bool  # autograd's, from forward to backward
    limits: RunLimits | None = None


def bind(model: Recipe | Program, graph: Graph | TrainedOn, seed: int) -> Program:
    """The program a model becomes on this graph, or a copy of a program; a model that does not fit is refused."""
    if isinstance(model, Recipe):
        if isinstance(graph, Graph) and graph.num_features == 0:
            raise GraphError(
                f"graph {graph.name!r} has no features: a model needs at least one column of them. {_how_to_add(graph)}"
            )
        check_weights_fit(model, graph)
        return model.build(graph.num_features, max(graph.num_classes, 1), seed=seed)
    check_program(model)
    if isinstance(graph, Graph):
        check_features(model, graph)
    _check_width(graph, "features", graph.num_features, model.in_columns)
    _check_width(graph, "classes", graph.num_classes, model.out_columns)
    for name, weight in model.named_parameters():
        if weight.dtype != torch.float32:
            raise ConfigError(f"{name} of the model is {weight.dtype}: weights are float32, so call .float() on it.")
    check_bodies(lower(model, sparse_features=False, training=True, savings=Savings()).layers)
    return deepcopy(model)


def check_program(model: object) -> None:
    """Refuse what is no program, nor made into one by a graph."""
    if isinstance(model, Program):
        return
    cure = "use dorylus.gcn(hidden=16), another builder, or dorylus.Program([...]) of layers"
    if isinstance(model, Graph):
        cure = "the graph comes first, as in dorylus.train(graph, model)"
    elif isinstance(model, Recipe):
        cure = "give the trained one, result.model"
    elif isinstance(model, str) and model in BUILDERS:
        cure = f"use dorylus.{model}()"
    elif model in BUILDERS.values():
        cure = f"call it, as in dorylus.{getattr(model, '__name__', 'gcn')}(hidden=16)"
    elif isinstance(model, Layer):
        cure = "put it into a list, as in dorylus.Program([layer])"
    elif isinstance(model, list | tuple) and model and isinstance(model[0], Layer):
        cure = "make a program of the layers, dorylus.Program([...])"
    elif type(model).__module__.startswith(("torch_geometric", "dgl")):
        cure = (
            "train dorylus.gcn(hidden=16) or another builder's model; Program.from_pyg copies weights of PyG's layers"
        )
    elif isinstance(model, Module):
        cure = "write what it does per vertex as the bodies of a dorylus.Layer (docs/layers.md), or use dorylus.gcn()"
    raise ConfigError(f"model is {kind_of(model)}: {cure}.")


def check_graph(graph: object) -> None:
    """Refuse an object that is no graph, with the converter that makes one of it."""
    if isinstance(graph, Graph):
        return
    if (converter := converter_of(graph)) is not None:
        cure = f"make a graph of it by dorylus.{converter}"
    elif isinstance(graph, str | PathLike):
        cure = f"load it, as in dorylus.load({str(graph)!r})"
    elif isinstance(graph, Recipe | Module):
        cure = "the graph comes first, as in dorylus.train(graph, model)"
    elif type(graph).__module__.partition(".")[0] in ("numpy", "torch"):
        cure = "make a graph of edges by dorylus.Graph.from_edges(source, destination, features=..., labels=...)"
    else:
        cure = "load one, as in dorylus.load('cora'), or make one by dorylus.Graph.from_edges"
    raise ConfigError(f"graph is {kind_of(graph)}: {cure}.")


def check_weights_fit(model: Recipe, graph: Graph | TrainedOn) -> None:
    """Refuse a model whose weights, with what training keeps of each, do not fit in memory, before they are made."""
    free = process_memory.free_bytes()
    if free is None:
        return
    try:
        with torch.device("meta"):  # shapes without memory
            program = model.build(graph.num_features, max(graph.num_classes, 1))
    except ConfigError:
        raise
    except Exception:  # a user's layer may compute its initial weights, which needs real tensors
        return
    weights = sum(each.numel() for each in program.parameters())
    if weights * BYTES_A_WEIGHT > free:
        raise ConfigError(
            f"the model has {weights:,} weights for {graph.num_features:,} features and {graph.num_classes:,} classes, "
            f"which take {format_bytes(weights * BYTES_A_WEIGHT)} with their gradients and an optimiser, and "
            f"{format_bytes(free)} are free. Use a narrower model ({given('hidden')}), or a larger machine."
        )


def check_features(program: Program, graph: Graph) -> None:
    """Refuse a graph whose vertices or features a program cannot take."""
    if graph.num_vertices == 0:
        raise GraphError(f"graph {graph.name!r} has no vertices: there is nothing to compute.")
    _check_width(graph, "features", graph.num_features, program.in_columns)


def _check_width(graph: Graph | TrainedOn, what: str, has: int, wants: int) -> None:
    if has != wants:
        raise ConfigError(
            f"the model is made for {wants} {what}, but graph {graph.name!r} has {has}: build the model for {has}."
        )


def check_trainable(graph: Graph, config: RunConfig) -> None:
    """Refuse an object that is no graph, and a graph without labels to learn from."""
    check_graph(graph)
    if graph.labels is None or graph.num_classes == 0:
        raise GraphError(
            f"graph {graph.name!r} has no labels: training needs a label for every vertex of train_mask. "
            f"{_how_to_add(graph)}"
        )
    check_classes(graph)
    _check_one_hot(graph, config)
    if not graph.train_mask.any():
        raise GraphError(
            f"graph {graph.name!r} has an empty train_mask: mark at least one labelled vertex for training. "
            f"{_how_to_add(graph)}"
        )
    if graph.val_mask.any():
        return
    settings = {"patience": config.patience, "target_accuracy": config.target_accuracy, "keep": config.keep}
    for name, value in settings.items():
        if value not in (None, "last"):
            raise ConfigError(
                f"{given(name, value)} looks at validation, but graph {graph.name!r} has an empty val_mask: mark some "
                "vertices for validation (dorylus ingest --val FILE, val_mask= of Graph.from_edges, split= of "
                f"Graph.from_tables), or leave {given(name)} out."
            )


def _how_to_add(graph: Graph) -> str:
    """The cure for a graph that cannot be trained on: how to add everything that it lacks."""
    is_there = {
        "features": graph.num_features > 0,
        "labels": graph.labels is not None and graph.num_classes > 0,
        "train": bool(graph.train_mask.any()),
    }
    lacks = [name for name, there in is_there.items() if not there]
    if lacks == ["train"] and graph.class_names is not None:  # the labels come from a table of vertices
        return (
            "Its labels come from a table, so choose the vertices by a column of the table or by shares: split= of "
            "Graph.from_tables, as in split={'train': 0.6, 'val': 0.2}, or dorylus ingest --split train=.6,val=.2."
        )
    flags = " ".join(f"--{name} FILE" for name in lacks)
    arguments = ", ".join("train_mask=" if name == "train" else f"{name}=" for name in lacks)
    columns = ", ".join("split=" if name == "train" else "label=" if name == "labels" else f"{name}=" for name in lacks)
    return (
        f"Ingest its edges with dorylus ingest EDGES STORE {flags}, or give {arguments} to Graph.from_edges, or "
        f"{columns} to Graph.from_tables."
    )


def check_classes(graph: Graph) -> None:
    """Refuse labels that are numbers with gaps, far more than there are classes: each has a column in the model."""
    most = max(graph.num_vertices, MOST_CLASSES)
    if not graph.multilabel and graph.num_classes > most:
        raise GraphError(
            f"graph {graph.name!r} has {graph.num_classes:,} classes, but {graph.num_vertices:,} vertices: a model has "
            f"a column a class, and {most:,} are the most for this graph. Number the classes from 0 without gaps "
            "(np.unique with return_inverse=True does it)."
        )
    _check_gaps(graph)


def _check_gaps(graph: Graph) -> None:
    """Refuse labels that are not class numbers: most classes would have a column in the model and no vertex."""
    labels = graph.labels
    if labels is None or graph.multilabel or graph.num_classes <= MANY_CLASSES:
        return
    present = np.unique(labels[labels >= 0])
    if present.size * PRESENT < graph.num_classes and present.size and present[-1] == graph.num_classes - 1:
        raise GraphError(
            f"graph {graph.name!r} has labels up to {present[-1]:,}, but only {present.size:,} of those "
            f"{graph.num_classes:,} classes have a vertex: a model has a column a class. Number the classes from 0 "
            "without gaps (np.unique with return_inverse=True does it)."
        )


def _check_one_hot(graph: Graph, config: RunConfig) -> None:
    """Refuse a label matrix with exactly one label a row: those are classes, which a multi-label loss does not know."""
    labels = graph.labels
    if labels is None or not graph.multilabel or config.loss != "auto" or labels.shape[1] < 2:
        return
    if (labels.sum(axis=1, dtype=np.int64) == 1).all():
        raise GraphError(
            f"graph {graph.name!r} has label rows with one label each, as if they were one-hot, and a matrix stands "
            f"for several labels a vertex: give class numbers, labels.argmax(axis=1), or {given('loss', 'bce')} if "
            "several labels are meant."
        )


def check_finite(graph: Graph) -> None:
    """Refuse features that are not finite. Called after a failure: a store's features are not checked in advance."""
    features = graph.features
    values = features.values if isinstance(features, SparseFeatures) else features
    if not np.isfinite(values).all():
        raise GraphError(
            f"graph {graph.name!r} has features that are NaN or infinite: replace them, and store it again."
        )


def threads_of(config: RunConfig) -> int:
    """How many engine threads to use: by default all cores that this process may use."""
    return config.threads or len(os.sched_getaffinity(0))


def savings_of(config: RunConfig) -> Savings:
    """Which exact savings are on."""
    return Savings(
        cache_first_gather=config.cache_first_gather,
        narrow_gather=config.narrow_gather,
        prune_rows=config.prune_rows,
    )


def in_host_memory(backend: Backend | None) -> bool:
    """Whether matrices certainly lie in host memory: other classes of back ends may keep them on a device."""
    return backend is None or isinstance(backend, HostBackend)


def assemble(graph: Graph, program: Program, config: RunConfig, backend: Backend | None = None) -> RunParts:
    """Cut the graph and lower the program for training and evaluation; refuse a run that does not fit in memory."""
    savings, sparse = savings_of(config), graph.sparse_features
    training = lower(program, sparse_features=sparse, training=True, savings=savings)
    evaluation = lower(program, sparse_features=sparse, training=False, savings=savings)
    _check_gathers(training, config)
    request = memory_request(graph, training, evaluation, config)
    if config.cluster == "local" and in_host_memory(backend):
        check_room(request)
    saved, limited = saved_shards(graph, config), limits(request)
    if limited is None or limited.limited is None:
        cut = cut_graph(graph, program, config, graph.train_mask, saved)
        work = _work(training, graph, cut)
    else:
        cut = plain_partition_plan(graph.indptr, program.num_layers, limited.intervals)
        work = _whole_work(training, graph)  # blocks of columns are no less work than whole rows
        training, evaluation = limited.training or training, limited.evaluation
    kept = graphs_kept(config, limited)
    return RunParts(cut, saved, training, evaluation, *_loss(graph, config), work, kept, limited)


def graphs_kept(config: RunConfig, limited: RunLimits | None = None) -> bool:
    """Whether autograd's graphs stay from forward to backward: by the settings, unless a memory limit has decided."""
    if limited is not None:
        return limited.keeps_graphs
    return POOLS[config.pool].keeps_autograd_graphs if config.rematerialize is None else not config.rematerialize


def memory_request(
    graph: Graph, training: Plan | None, evaluation: Plan, config: RunConfig, to_load: int = 0
) -> RunRequest:
    """The run as :mod:`dorylus.memory` plans it."""
    changes = config.changes_for_limit
    if config.servers > 1 and config.partition not in METHODS:
        changes["partition"] = "stream"  # shards for several servers are not for one
    return RunRequest(
        graph,
        training,
        evaluation,
        config,
        threads_of(config),
        to_load,
        intervals=config.intervals,
        keeps_graphs=graphs_kept(config),
        run_dir=config.run_dir,
        changes=changes,
    )


def cut_graph(
    graph: Graph, program: Program, config: RunConfig, targets: NDArray[np.bool_], saved: Shards | None = None
) -> PartitionPlan:
    """The graph over its servers, in intervals; with pruning, rows that reach no target vertex are left out."""
    layers = program.num_layers
    if config.prune_rows:
        needed = needed_levels(graph.indptr, graph.indices, targets, layers)
        deepest = settle_levels(needed, graph.in_degrees(), layers)
    else:
        deepest = np.full(graph.num_vertices, layers, np.int8)
    parts = _parts(graph, config, saved)
    sizes = np.bincount(parts, minlength=config.servers)
    intervals = config.intervals or _intervals(graph, program, deepest, config, int(sizes.min()))
    order_of_rows, each = vertex_order(graph, config.reorder), [intervals] * config.servers
    return make_partition_plan(graph.in_degrees(), order_of_rows, parts, config.servers, deepest, layers, each)


def saved_shards(graph: Graph, config: RunConfig) -> Shards | None:
    """The folder of shards that ``partition`` names, if it does not name a method."""
    if config.partition in METHODS:
        return None
    if not is_remote(config.partition) and not Path(config.partition).is_dir():
        known = unknown_value("partition", config.partition, METHODS)
        raise ConfigError(f"{known} There is no folder of saved shards of that name either.")
    saved = open_shards(config.partition)
    saved.check(graph)
    if saved.num_servers != config.servers:
        raise ConfigError(
            f"{given('servers', config.servers)}, but {config.partition} holds shards for {saved.num_servers}: use "
            f"that many, or cut them again by `dorylus partition {config.partition} --servers {config.servers} --out "
            f"FOLDER`, or give {given('partition', 'stream')} or another method."
        )
    return saved


def _parts(graph: Graph, config: RunConfig, saved: Shards | None) -> NDArray[np.int32]:
    """Which server every vertex goes to."""
    if config.servers == 1:
        return np.zeros(graph.num_vertices, np.int32)
    return make_partitioning(graph, config.servers, config.partition).parts if saved is None else saved.parts


def _check_gathers(plan: Plan, config: RunConfig) -> None:
    """Refuse gathers whose gradient needs the values that were gathered, in modes in which those may have changed."""
    gathers = [stage for stage in plan.stages if isinstance(stage, Gather) and stage.over is None]
    narrow = config.ghost_precision == "bf16" and config.servers > 1
    inexact = {given("mode", "async"): config.mode == "async", given("ghost_precision", "bf16"): narrow}
    for name in (name for name, applies in inexact.items() if applies):
        for stage in gathers:
            if stage.spec.needs_exact_rows and stage.output.needs_grad:
                raise ConfigError(
                    f"layer {stage.output.layer} {stage.spec.needs_exact_rows}, and with {name} that row may have "
                    f"changed: use {given('mode', 'pipe')} and float32, or a mean or sum."
                )
    if config.mode == "async":
        for stage in gathers:
            _check_dropout(stage, plan.layers[: stage.output.layer + 1])


def _check_dropout(stage: Gather, layers: Sequence[Layer]) -> None:
    """Refuse dropout under attention: its gradient would meet rows of another epoch, with another dropout mask."""
    drops = any(layer.dropout or getattr(layer, "attention_dropout", 0) for layer in layers)
    if stage.spec.needs_steady_rows and drops:
        raise ConfigError(
            f"layer {stage.output.layer} {stage.spec.needs_steady_rows}, and the model has dropout: with "
            f"{given('mode', 'async')} a gradient may meet rows of another epoch, with another dropout mask. "
            f"Use {given('mode', 'pipe')}, or a model with {given('dropout', 0)}."
        )


def _intervals(graph: Graph, program: Program, deepest: NDArray[np.int8], config: RunConfig, smallest: int) -> int:
    """The number of intervals a server that suits the rows and edges training needs, over all servers together."""
    edges = int(graph.in_degrees()[deepest >= 1].sum())
    chosen = choose_intervals(int((deepest >= 0).sum()), edges, threads_of(config))
    if any(program.layer(index).has_apply_edge for index in range(program.num_layers)):
        chosen = max(chosen, edges // EDGES_PER_EDGE_TASK)
    return max(1, min(-(-chosen // config.servers), smallest))


def _loss(graph: Graph, config: RunConfig) -> tuple[str, float]:
    loss = config.loss
    if loss == "auto":
        loss = "bce" if graph.multilabel else "cross_entropy"
    if (loss == "bce") != graph.multilabel:
        kind = "several labels" if graph.multilabel else "one label"
        raise ConfigError(
            f"{given('loss', loss)}, but vertices of graph {graph.name!r} have {kind} each: use "
            f"{given('loss', 'auto')}."
        )
    count = int(graph.train_mask.sum())
    return loss, float(count * graph.num_classes if graph.multilabel else count)


def _whole_work(plan: Plan, graph: Graph) -> Work:
    """The work where every row is computed, as if no vertex had a self loop."""

    def edges(layer: Layer) -> int:
        return graph.num_edges + (graph.num_vertices if layer.self_loops else 0)

    return measure(plan, lambda layer, _: edges(layer), edges)


def _work(plan: Plan, graph: Graph, cut: PartitionPlan) -> Work:
    degrees = graph.in_degrees()
    with_loops = degrees + ~has_self_loop(graph.indptr, graph.indices)

    def edges_into(layer: Layer, level: int) -> int:
        return int((with_loops if layer.self_loops else degrees)[cut.deepest >= level].sum())

    return measure(plan, edges_into, lambda layer: edges_into(layer, -1))


TO_LOAD = 12 << 20  # what `dorylus train` has loaded beside what a process has that only plans


@lists_settings
def plan_memory(graph: Graph, model: Recipe | Program, **settings: Unpack[AllSettings]) -> MemoryPlan:
    """The bytes a training run holds by kind, in memory and in files, and whether that fits.

    Settings are those of ``train``; without ``memory``, the limit is what this machine has free.
    """
    config = RunConfig.of(**settings)
    check_graph(graph)
    check_classes(graph)
    program = bind(model, graph, config.seed)
    make_optimizer(config, list(program.named_parameters()))  # as a run does: what torch loads for it is memory too
    plans = [
        lower(program, sparse_features=graph.sparse_features, training=training, savings=savings_of(config))
        for training in (True, False)
    ]
    return memory_plan(memory_request(graph, plans[0], plans[1], config, TO_LOAD))
