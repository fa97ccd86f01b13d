"""Lowering: a program's layers become stages, in the cheaper order and without work that can be saved.

:func:`measure` compares the edge-work of such a plan with that of a straightforward implementation.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from dorylus.errors import ConfigError
from dorylus.saga.checks import label, probe
from dorylus.saga.layer import Layer
from dorylus.saga.program import Program
from dorylus.saga.reductions import reduction_of
from dorylus.saga.stages import ApplyEdge, ApplyVertex, Body, Gather, Loss, Scatter, Slot, Stage


@dataclass(frozen=True, kw_only=True)
class Savings:
    """The exact savings: each leaves every number the same to rounding, and can be switched off to measure it."""

    cache_first_gather: bool = True
    narrow_gather: bool = True
    prune_rows: bool = True


@dataclass(frozen=True, eq=False)
class Plan:
    """A lowered program. ``layer_outputs[l]`` is the slot of layer l's output, where the plan stores it."""

    stages: tuple[Stage, ...]
    layers: tuple[Layer, ...]
    features: Slot
    layer_outputs: tuple[Slot | None, ...]
    sparse_features: bool
    parts: Mapping[Slot, tuple[Slot, ...]] = field(default_factory=dict)  # the blocks of slots that are split

    @property
    def results(self) -> frozenset[Slot]:
        """The slots that are read when a pass is over, and so must stay: the output of a plan for evaluation."""
        last = self.layer_outputs[-1]
        return frozenset(() if last is None else self.parts.get(last, (last,)))

    @property
    def num_layers(self) -> int:
        """How many layers the program has."""
        return len(self.layers)

    @property
    def reads_features(self) -> bool:
        """Whether every epoch reads features, not only a gather that is made once."""
        return any(
            self.features in _read_by(stage)
            for stage in self.stages
            if not (isinstance(stage, Gather) and stage.output.source == "static")
        )


def _read_by(stage: Stage) -> tuple[Slot, ...]:
    if isinstance(stage, Scatter):
        return stage.slots
    return (stage.source, stage.destination) if isinstance(stage, ApplyEdge) else stage.inputs


class VertexBody(nn.Module):
    """The dense work between two gathers: ``apply_vertex`` of one layer and ``prepare`` of the next."""

    def __init__(self, after: tuple[int, Layer] | None, before: tuple[int, Layer] | None, emit_row: bool) -> None:
        super().__init__()
        pair = [part for part in (after, before) if part is not None]
        self.layers = nn.ModuleDict({str(index): layer for index, layer in pair})
        self.after = None if after is None else str(after[0])
        self.before = None if before is None else str(before[0])
        self.emit_row = emit_row

    def forward(self, *inputs: Any) -> tuple[Tensor, ...]:
        """(row and prepared row where the layer reads them, gathered) -> (row if emitted, prepared rows)."""
        row = inputs[0] if self.after is None else _after(self.layers[self.after], list(inputs))  # type: ignore[arg-type]
        outputs = (row,) if self.emit_row else ()
        if self.before is None:
            return outputs
        prepared = self.layers[self.before].prepare(row)  # type: ignore[operator]
        return outputs + (prepared if isinstance(prepared, tuple) else (prepared,))


def _after(layer: Layer, inputs: list[Tensor]) -> Tensor:
    gathered = inputs.pop()
    x = inputs.pop(0) if needs_input(layer) else None
    own = {"input": x, "prepared": inputs[0] if inputs else x, "none": None}[layer.own]
    return layer.finish(x, layer.apply_vertex(own, gathered))  # type: ignore[arg-type]


def needs_input(layer: Layer) -> bool:
    """Whether the layer's second body reads the layer's input row."""
    return layer.own == "input" or layer.residual is not None or (layer.own == "prepared" and not layer.prepares)


def _reads_float32(layer: Layer) -> bool:
    """Whether the layer's gather reads rows in float32 only. Where edges are transformed, dense tasks read the rows."""
    rows = None if layer.has_apply_edge else reduction_of(layer).rows
    return rows is not None and not rows.reads_bf16


class EdgeBody(nn.Module):
    """The dense work on edges of one layer."""

    def __init__(self, index: int, layer: Layer) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(index): layer})
        self.index = str(index)

    def forward(self, source: Tensor, destination: Tensor, weight: Tensor) -> Any:
        """The messages (and scores) of some edges."""
        return self.layers[self.index].apply_edge(source, destination, weight)  # type: ignore[operator]


def lower(program: Program, *, sparse_features: bool, training: bool, savings: Savings) -> Plan:
    """The stages of a program, for training (with dropout and a loss) or for evaluation (ending in logits)."""
    layers = [deepcopy(program.layer(index)) for index in range(program.num_layers)]
    for index, layer in enumerate(layers):
        layer.transform_first = _transform_first(layer, index == 0, sparse_features, savings)
    first = layers[0]
    sparse = sparse_features and first.accepts_sparse and first.prepares and first.residual is None
    return _Lowering(layers, sparse, training, savings).run()


def _transform_first(layer: Layer, first: bool, sparse: bool, savings: Savings) -> bool:
    if not layer.commutes:
        return layer.transform_first
    if first and not sparse and savings.cache_first_gather and layer.dropout == 0:
        return False  # gathered once for all epochs: nothing is cheaper
    if not savings.narrow_gather:
        return layer.transform_first
    if first and sparse:
        return True
    # Features need no gradient: gathering them first saves the backward gather, worth twice the width.
    return layer.prepared_columns * (2 if first else 1) < layer.in_columns


def _vertex_body(after: tuple[int, Layer] | None, before: tuple[int, Layer] | None, emit_row: bool) -> Body:
    pair = (("apply_vertex", after), ("prepare", before))
    labels = [label(method, *part) for method, part in pair if part is not None]
    return Body(VertexBody(after, before, emit_row), " and ".join(labels))


def _probe(name: str, body: Callable[..., Any], *columns: int) -> tuple[Tensor, ...]:
    """A body's outputs for two rows of zeros of these widths; the plan needs the outputs' widths."""
    return probe(name, body, *(torch.zeros(2, width) for width in columns))


def _check_messages(index: int, layer: Layer, parts: tuple[Tensor, ...]) -> None:
    reduction = reduction_of(layer)
    scores = reduction.messages is not None and reduction.messages.scores
    if scores and (len(parts) != 2 or parts[1].shape[1] != layer.heads):
        raise ConfigError(
            f"layer {index} reduces by {reduction}: its apply_edge must return (message, score), with {layer.heads} "
            "columns of scores, one a head."
        )
    if not scores and len(parts) != 1:
        raise ConfigError(
            f"apply_edge of layer {index} returns {len(parts)} tensors: return one tensor, or reduce by 'softmax'."
        )


def _check_layer_class(index: int, layer: Layer) -> None:
    reduction = reduction_of(layer)
    if reduction.only_for is not None and reduction.only_for not in (each.__name__ for each in type(layer).__mro__):
        raise ConfigError(
            f"layer {index} reduces by {reduction}, which only {reduction.only_for} does: use 'softmax' in its stead."
        )


class _Lowering:
    def __init__(self, layers: list[Layer], sparse: bool, training: bool, savings: Savings) -> None:
        self.layers = layers
        self.sparse = sparse
        self.training = training
        first = layers[0]
        rows = None if first.has_apply_edge else reduction_of(first).rows
        once = rows is not None and rows.made_once
        self.static = savings.cache_first_gather and once and not first.prepares and first.dropout == 0
        self.stages: list[Stage] = []
        self.rows: list[Slot | None] = []  # every layer's output
        self.prepared: tuple[Slot, ...] = ()

    def run(self) -> Plan:
        features = x = self._features()
        self._open(0, x)
        for index in range(len(self.layers)):
            gathered = self._gather(index, x)
            x = self._close(index, x, gathered)
        stages, layers, rows = tuple(self.stages), tuple(self.layers), tuple(self.rows)
        return Plan(stages, layers, features, rows, self.sparse)

    def _features(self) -> Slot:
        first = self.layers[0]
        gathered = not first.prepares and not self.static
        dropout = first.dropout if self.training else 0.0
        exact = _reads_float32(first)
        return Slot("features", first.in_columns, 0, 0, dropout, gathered, exact, needs_grad=False, source="features")

    def _open(self, index: int, x: Slot) -> None:
        """The stages between a layer's input and its gather."""
        layer = self.layers[index]
        if layer.prepares:
            body = _vertex_body(None, (index, layer), emit_row=False)
            self.prepared = self._prepared_slots(index)
            self.stages.append(ApplyVertex(body, (x,), self.prepared, index))
            self._scatter(self.prepared)
        else:
            self.prepared = (x,)
            if x.gathered and (x.source == "computed" or x.dropout > 0):
                self._scatter((x,))

    def _scatter(self, slots: tuple[Slot, ...]) -> None:
        published = tuple(slot for slot in slots if slot.gathered)
        if published:
            self.stages.append(Scatter(published))

    def _prepared_slots(self, index: int) -> tuple[Slot, ...]:
        layer = self.layers[index]
        parts = _probe(label("prepare", index, layer), layer.prepare, layer.in_columns)
        # By convention the last of several parts is the destination's, and is not published.
        kept = len(parts) - 1 if len(parts) > 1 else len(parts)
        exact = _reads_float32(layer)
        return tuple(
            Slot(f"prepared{index}.{k}", part.shape[1], index, index, gathered=k < kept, exact=exact or k > 0)
            for k, part in enumerate(parts)
        )

    def _gather(self, index: int, x: Slot) -> Slot:
        layer = self.layers[index]
        _check_layer_class(index, layer)
        static = index == 0 and self.static
        needs_grad = any(slot.needs_grad for slot in self.prepared) or layer.has_apply_edge
        output = Slot(
            f"gathered{index}", 0, index + 1, index, needs_grad=needs_grad, source="static" if static else "computed"
        )
        over = self._apply_edge(index) if layer.has_apply_edge else None
        output = replace(output, columns=over.columns[0] if over else self.prepared[0].columns)
        self.stages.append(Gather(layer, self.prepared, output, over))
        return output

    def _apply_edge(self, index: int) -> ApplyEdge:
        layer, source, destination = self.layers[index], self.prepared[0], self.prepared[-1]
        body = Body(EdgeBody(index, layer), label("apply_edge", index, layer))
        parts = _probe(body.label, layer.apply_edge, source.columns, destination.columns, 1)
        _check_messages(index, layer, parts)
        stage = ApplyEdge(body, layer, source, destination, tuple(part.shape[1] for part in parts), index + 1)
        self.stages.append(stage)
        return stage

    def _close(self, index: int, x: Slot, gathered: Slot) -> Slot:
        """The stages between a gather and the next layer's input, its ``prepare`` fused in where possible."""
        layer = self.layers[index]
        inputs: tuple[Slot, ...] = (x,) if needs_input(layer) else ()
        if layer.own == "prepared" and layer.prepares:
            inputs += (self.prepared[0],)
        inputs += (gathered,)
        if index == len(self.layers) - 1:
            return self._end(index, inputs)
        following = self.layers[index + 1]
        dropout = following.dropout if self.training else 0.0
        level, gathers = index + 1, not following.prepares
        row = Slot(f"row{level}", layer.out_columns, level, level, dropout, gathers, exact=_reads_float32(following))
        fused = following.prepares and dropout == 0
        emit_row = not fused or needs_input(following)
        self.rows.append(row if emit_row else None)
        if not fused:
            self.stages.append(ApplyVertex(_vertex_body((index, layer), None, True), inputs, (row,), index + 1))
            self._open(index + 1, row)
            return row
        self.prepared = self._prepared_slots(index + 1)
        body = _vertex_body((index, layer), (index + 1, following), emit_row)
        outputs = ((row,) if emit_row else ()) + self.prepared
        self.stages.append(ApplyVertex(body, inputs, outputs, index + 1))
        self._scatter(self.prepared)
        return row

    def _end(self, index: int, inputs: tuple[Slot, ...]) -> Slot:
        layer = self.layers[index]
        level = index + 1
        body = _vertex_body((index, layer), None, True)
        logits = Slot("logits", layer.out_columns, level, level)
        self.rows.append(None if self.training else logits)
        self.stages.append(Loss(body, inputs, level) if self.training else ApplyVertex(body, inputs, (logits,), level))
        return logits


@dataclass(frozen=True)
class Work:
    """Edge-work of one epoch: edges times columns, over every gather and its gradient.

    ``naive`` gathers every layer at its usual width, over all edges, in every epoch, forward and backward.
    ``saved`` describes what was left out.
    """

    done: int
    naive: int
    saved: tuple[str, ...]

    @property
    def share(self) -> float:
        """The share of the naive work that is done."""
        return self.done / self.naive if self.naive else 0.0

    def __str__(self) -> str:
        what = f" ({'; '.join(self.saved)})" if self.saved else ""
        return f"{100 * self.share:.0f} % of naive edge-work{what}"


def measure(plan: Plan, edges_into: Callable[[Layer, int], int], edges: Callable[[Layer], int]) -> Work:
    """The work of a training plan; ``edges_into`` counts a layer's edges that end in a row needed at a level."""
    done = naive = 0
    saved: list[str] = []
    for stage in plan.stages:
        if not isinstance(stage, Gather):
            continue
        layer, output = stage.layer, stage.output
        number = output.layer
        every = edges(layer)
        backward = number > 0 or layer.transforms_first_by_default  # features alone need no gradient
        naive += every * layer.plain_gather_columns * (1 + backward)
        if output.source == "static":
            saved.append(f"layer {number} gathers once for all epochs")
            continue
        needed = edges_into(layer, output.level)
        done += needed * output.columns * (1 + output.needs_grad)
        if backward and not output.needs_grad:
            saved.append(f"layer {number} gathers features, which need no gradient")
        if output.columns < layer.plain_gather_columns:
            saved.append(f"layer {number} gathers {output.columns} columns instead of {layer.plain_gather_columns}")
        if needed < 0.995 * every:
            share = f"{100 * needed / every:.0f} % of edges"
            saved.append(f"layer {number} gathers only for rows that reach a label, {share}")
    return Work(done, naive, tuple(saved))
