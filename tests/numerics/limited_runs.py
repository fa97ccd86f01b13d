"""Training under a memory limit and the same training in memory, on graphs of many pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_user_layers import GatedEdges

import dorylus
from dorylus.graph import SparseFeatures
from dorylus.memory import SpillSettings
from dorylus.memory.layout import Figures
from dorylus.memory.limit import RunLimits, RunRequest
from dorylus.paging import ReservedMemory
from dorylus.saga.columns import in_blocks
from dorylus.servers import SpillPolicy
from dorylus.training import assembly

NUM_VERTICES, NUM_FEATURES, NUM_CLASSES = 700, 40, 19
GRAPHS = ("undirected", "directed", "weighted", "sparse", "multilabel")


@dataclass(frozen=True, kw_only=True)
class LimitedCut:
    """How a limit cuts a run. An interval of a hundred rows and more has pages of its own in every wide matrix."""

    blocks: int = 2
    static_blocks: int = 2
    intervals: int = 5
    policy: SpillPolicy = field(default_factory=SpillPolicy)


@cache
def paged_graph(kind: str) -> dorylus.Graph:
    """A random graph of hubs, some self loops, and ten vertices without edges at its end."""
    rng = np.random.default_rng(7)
    directed = kind in ("directed", "weighted")
    source, destination = _edges(rng, directed)
    weight = rng.uniform(0.5, 1.5, source.size).astype(np.float32) if kind == "weighted" else None
    part = rng.integers(0, 10, NUM_VERTICES)
    labels = rng.integers(0, NUM_CLASSES, NUM_VERTICES)
    return dorylus.Graph.from_edges(
        source,
        destination,
        NUM_VERTICES,
        undirected=not directed,
        edge_weight=weight,
        features=_features(rng, kind == "sparse"),
        labels=rng.integers(0, 2, (NUM_VERTICES, NUM_CLASSES)) if kind == "multilabel" else labels,
        num_classes=NUM_CLASSES,
        train_mask=part < 5,
        val_mask=part == 5,
        test_mask=part > 5,
    )


def _edges(rng: np.random.Generator, directed: bool) -> Any:
    last = NUM_VERTICES - 10
    looped = np.arange(0, last, 9)
    ends = np.concatenate([(last * rng.random((2, 6000)) ** 2).astype(np.int64), np.stack([looped, looped])], axis=1)
    return np.unique(ends if directed else np.sort(ends, axis=0), axis=1)


def _features(rng: np.random.Generator, sparse: bool) -> Any:
    dense = rng.standard_normal((NUM_VERTICES, NUM_FEATURES), dtype=np.float32)
    if not sparse:
        return dense
    kept = rng.random(dense.shape) < 0.2
    return SparseFeatures(
        np.concatenate([[0], kept.sum(axis=1).cumsum()]),
        np.nonzero(kept)[1].astype(np.int32),
        dense[kept],
        NUM_FEATURES,
    )


def _edge_program(reduce: str, dropout: float) -> dorylus.Program:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first = GatedEdges(NUM_FEATURES, 36, reduce, dropout=dropout, activation="relu")
        return dorylus.Program([first, GatedEdges(36, NUM_CLASSES, reduce, dropout=dropout)])


RECIPES = {
    "gcn": lambda **more: dorylus.gcn(hidden=[40, 24], **more),
    "gcn narrow wide": lambda **more: dorylus.gcn(hidden=[6, 40, 20], **more),
    "gcn residual": lambda **more: dorylus.gcn(hidden=[40, 40], residual=True, layer_norm=True, **more),
    "sage mean": lambda **more: dorylus.sage(hidden=[40, 24], **more),
    "sage max": lambda **more: dorylus.sage(hidden=[40, 36], aggregator="max", **more),
    "gin": lambda **more: dorylus.gin(hidden=[20, 33], train_eps=True, **more),
    "gat": lambda **more: dorylus.gat(hidden=20, heads=2, num_layers=3, **more),
    "gat many heads": lambda **more: dorylus.gat(hidden=5, heads=16, num_layers=3, **more),
}
EDGE_LAYERS = ("edges sum", "edges mean", "edges max", "edges softmax")


def model(name: str, dropout: float, input_dropout: float | None = None) -> Any:
    """A recipe or program by its name; the same weights every time."""
    if name in EDGE_LAYERS:
        return _edge_program(name.split()[1], dropout)
    return RECIPES[name](dropout=dropout, input_dropout=input_dropout)


SETTINGS = {
    "epochs": 4,
    "lr": 0.01,
    "optimizer_options": {"eps": 0.01},
    "eval_every": 2,
    "seed": 1,
    "threads": 2,
    "deadline_s": 60,
}


@cache
def in_memory(
    kind: str, name: str, dropout: float, input_dropout: float | None = None, precision: str = "float32"
) -> dorylus.Result:
    """The run in memory, to compare with."""
    return dorylus.train(
        paged_graph(kind),
        model(name, dropout, input_dropout),
        prune_rows=False,
        intervals=5,
        precision=precision,
        **SETTINGS,
    )


@contextmanager
def limited(scratch: Path, cut: LimitedCut) -> Iterator[None]:
    """Within the context, runs with a limit are cut like this, whatever the limit; returned memory is overwritten."""

    def limits(request: RunRequest) -> RunLimits | None:
        if request.config.memory is None:
            return None
        plans = [in_blocks(plan, cut.blocks) for plan in (request.training, request.evaluation)]
        how = SpillSettings(scratch=str(scratch), policy=cut.policy, static_blocks=cut.static_blocks)
        return RunLimits(plans[0], plans[1], cut.intervals, how, False, Figures(), 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "limits", limits)
        patch.setattr(ReservedMemory, "drop", _overwrite)
        yield


def _overwrite(window: ReservedMemory, begin: int, end: int) -> None:
    window.bytes[begin:end] = 0xFF  # NaN, as float32 and as bfloat16; -1 as a vertex


def under_limit(graph: dorylus.Graph, what: Any, scratch: Path, cut: LimitedCut, **settings: Any) -> dorylus.Result:
    """The same training under a limit."""
    with limited(scratch, cut):
        return dorylus.train(graph, what, memory="1GiB", **(SETTINGS | settings))


def assert_equal_runs(found: dorylus.Result, expected: dorylus.Result, *, within: float = 1e-6) -> None:
    """Losses and weights agree to rounding, and so every score."""
    np.testing.assert_allclose(found.losses, expected.losses, rtol=0, atol=within * max(expected.losses))
    weights, reference = found.model.state_dict(), expected.model.state_dict()
    assert weights.keys() == reference.keys()
    for name, weight in weights.items():
        np.testing.assert_allclose(weight.numpy(), reference[name].numpy(), rtol=0, atol=within, err_msg=name)
    if within <= 1e-6:
        assert dict(found.metrics) == pytest.approx(dict(expected.metrics), abs=1e-12)


def all_policies() -> list[SpillPolicy]:
    """Every combination of what is paged."""
    flags = (False, True)
    return [SpillPolicy(rows=r, gathered=g, published=p) for r in flags for g in flags for p in flags]
