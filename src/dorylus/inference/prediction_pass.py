"""A forward pass over the whole graph, whose rows are read block by block.

Blocks have any size; `slabs` joins them to one size that is worth a write and takes little memory.
"""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import Backend
from dorylus.config import RunConfig
from dorylus.errors import ConfigError, given, unknown_name
from dorylus.graph import Graph
from dorylus.memory import RunLimits, check_room, limits
from dorylus.partition import PartitionPlan, plain_partition_plan
from dorylus.pools import ThreadsPool
from dorylus.process_memory import give_back
from dorylus.runtime import Job, LocalRuntime, Outputs
from dorylus.saga import Program, lower
from dorylus.training import (
    check_features,
    classes_of,
    cut_graph,
    in_host_memory,
    memory_request,
    savings_of,
    threads_of,
)

SLAB_ROWS, SLAB_BYTES = 131_072, 1 << 23  # at most

Rows = NDArray[Any]


@dataclass(frozen=True)
class PredictionForm:
    """The shape of predictions: the number of rows, the numbers of each (None: one, not a list), and their type."""

    num_rows: int
    columns: int | None
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all of them as an array."""
        return (self.num_rows,) if self.columns is None else (self.num_rows, self.columns)

    @property
    def num_bytes(self) -> int:
        """The bytes of all rows."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def slab(self) -> Rows:
        """An array for the rows that are written together."""
        row_bytes = max(1, self.num_bytes // max(1, self.num_rows))
        return np.empty((max(1, min(SLAB_ROWS, SLAB_BYTES // row_bytes, self.num_rows)), *self.shape[1:]), self.dtype)


def slabs(blocks: Iterable[Rows], form: PredictionForm) -> Iterator[Rows]:
    """The same rows in slabs of one size, the last one excepted; a slab is valid until the next."""
    slab, filled = form.slab, 0
    for block in blocks:
        copied = 0
        while copied < len(block):
            count = min(len(block) - copied, len(slab) - filled)
            slab[filled : filled + count] = block[copied : copied + count]
            copied, filled = copied + count, filled + count
            if filled == len(slab):
                yield slab
                filled = 0
    if filled:
        yield slab[:filled]


WHAT = ("classes", "embeddings", "logits", "probabilities", "table")
CLASS_AND_PROBABILITY = np.dtype([("class", np.int32), ("probability", np.float32)])


class PredictionPass:
    """Predictions of a program for every vertex: of known ``form``, with rows that :meth:`blocks` computes.

    ``several``: whether the program was trained for any number of labels per vertex.
    """

    def __init__(
        self,
        graph: Graph,
        program: Program,
        what: str,
        layer: int,
        config: RunConfig,
        backend: Backend,
        *,
        several: bool,
    ) -> None:
        if what not in WHAT:
            if isinstance(what, Graph):
                raise ConfigError(
                    "what to predict is named first, and another graph by graph=: predict('classes', graph=graph)."
                )
            raise ConfigError(unknown_name("prediction", what, WHAT))
        # Embeddings are the output of one layer: only the layers up to it are computed.
        head = program if what != "embeddings" else _first_layers(program, _hidden(program, layer) + 1)
        check_features(program, graph)
        self._graph, self._program, self._what, self._config = graph, head, what, config
        self._backend, self._several = backend, several
        self._plan = lower(head, sparse_features=graph.sparse_features, training=False, savings=savings_of(config))
        self.form = self._form_of(head.out_columns)

    @contextmanager
    def blocks(self, beside: int = 0) -> Iterator[Iterable[Rows]]:
        """Compute all rows, in the graph's order; a block is valid until the next.

        ``beside``: bytes of memory that the caller uses at the same time.
        """
        if self._config.memory is not None:  # what a training in this process left is free, but still held
            gc.collect()
            give_back()
        request = memory_request(self._graph, None, self._plan, self._config, to_load=beside)
        if in_host_memory(self._backend):
            check_room(request)
        layout = limits(request)
        runtime = LocalRuntime(self._job(layout), ThreadsPool())
        try:
            outputs = runtime.outputs()
            in_order = (layout is not None and layout.limited is not None) or self._config.reorder == "none"
            yield self._in_order(outputs) if in_order else [self._whole(outputs)]
        finally:
            runtime.close()

    def array(self) -> Rows:
        """Compute all rows, as one array."""
        out = np.empty(self.form.shape, self.form.dtype)
        done = 0
        with self.blocks(beside=self.form.num_bytes) as blocks:
            for block in blocks:
                out[done : done + len(block)] = block
                done += len(block)
        return out

    def _form_of(self, columns: int) -> PredictionForm:
        rows = self._graph.num_vertices
        several = self._several
        if self._what == "table" and not several:
            return PredictionForm(rows, None, CLASS_AND_PROBABILITY)
        if self._what != "classes":
            return PredictionForm(rows, columns, np.dtype(np.float32))
        return PredictionForm(rows, columns if several else None, np.dtype(np.uint8 if several else np.int64))

    def _job(self, layout: RunLimits | None) -> Job:
        config = self._config
        return Job(
            graph=self._graph,
            cut=self._cut(layout),
            program=self._program,
            evaluation=self._plan if layout is None else layout.evaluation,
            backend=self._backend,
            threads=threads_of(config),
            deadline_s=config.deadline_s,
            bf16=config.precision == "bf16",
            limited=None if layout is None else layout.limited,
            bounded=None if layout is None else layout.bounded,
        )

    def _cut(self, layout: RunLimits | None) -> PartitionPlan:
        if layout is not None and layout.limited is not None:
            return plain_partition_plan(self._graph.indptr, self._program.num_layers, layout.intervals)
        every_vertex = np.ones(self._graph.num_vertices, np.bool_)
        return cut_graph(self._graph, self._program, self._config, every_vertex)

    def _values(self, rows: Rows) -> Rows:
        if self._what == "probabilities" or (self._what == "table" and self._several):
            return probabilities(rows, several=self._several)
        if self._what == "table":
            return _likeliest(rows)
        return classes_of(rows, self._several) if self._what == "classes" else rows

    def _in_order(self, outputs: Outputs) -> Iterator[Rows]:
        done = 0
        for vertices, rows in outputs.blocks():
            assert len(vertices) == 0 or (vertices[0], vertices[-1]) == (done, done + len(vertices) - 1)
            done += len(vertices)
            yield self._values(rows)

    def _whole(self, outputs: Outputs) -> Rows:
        """All rows in the graph's order, where they are computed in another order."""
        out = np.empty(self.form.shape, self.form.dtype)
        for vertices, rows in outputs.blocks():
            out[vertices] = self._values(rows)
        return out


def probabilities(logits: Rows, *, several: bool) -> Rows:
    """float32 [rows, classes]: the softmax of each row, or the sigmoid of each logit for ``several`` labels."""
    if several:
        with np.errstate(over="ignore"):  # exp of a large number is inf, and the probability 0
            return (1 / (1 + np.exp(-logits))).astype(np.float32)
    shares: Rows = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def _likeliest(logits: Rows) -> Rows:
    """Each row's class with its probability."""
    rows = np.empty(len(logits), CLASS_AND_PROBABILITY)
    rows["class"] = logits.argmax(axis=1)
    rows["probability"] = probabilities(logits, several=False).max(axis=1)
    return rows


def for_one_process(config: RunConfig, memory: str | int | None, scratch_dir: Any) -> RunConfig:
    """A run's settings for a forward pass in this process, on one server."""
    memory = config.memory if memory is None else memory
    changed: dict[str, Any] = {
        "servers": 1,
        "cluster": "local",
        "intervals": None,
        "mode": "pipe",
        "staleness": 0,
        "weight_update": "sync",
        "sync_margin": None,
        "memory": memory,
        "scratch_dir": config.scratch_dir if scratch_dir is None else scratch_dir,
    }
    if memory is not None:  # under a limit rows are computed in the order of the store
        changed["reorder"] = "none"
    return replace(config, **changed)


def _first_layers(program: Program, count: int) -> Program:
    return Program([program.layer(index) for index in range(count)])


def _hidden(program: Program, layer: int) -> int:
    hidden = program.num_layers - 1
    if not isinstance(layer, Integral) or not -hidden <= layer < hidden:
        raise ConfigError(
            f"{given('layer', layer)}, but the model has {hidden} hidden layer{'' if hidden == 1 else 's'}: "
            f"embeddings are the output of one of them, 0 to {hidden - 1} or counted back from -1."
            if hidden
            else "the model has one layer and no hidden one, so it has no embeddings: use logits."
        )
    return layer % hidden
