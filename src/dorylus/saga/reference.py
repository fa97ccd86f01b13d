"""The reference: programs in one plain PyTorch process, on the whole graph at once, with autograd's gradients.

It is slow, and shares with the engine only the layers' dense bodies and the definition of dropout
(:mod:`dorylus.backends.reference`). Synchronous training equals it to rounding.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dorylus.backends import Dropout, reference
from dorylus.graph import Graph, SparseFeatures, adjacency
from dorylus.saga.dense import IGNORED, loss_sum
from dorylus.saga.gat import GAT
from dorylus.saga.layer import Layer
from dorylus.saga.program import Program
from dorylus.saga.reductions import reduction_of


@dataclass(frozen=True)
class Edges:
    """All edges of a graph as one layer sees them: source, destination and weight of each."""

    source: Tensor
    destination: Tensor
    weight: Tensor
    num_vertices: int

    @classmethod
    def of(cls, graph: Graph, layer: Layer, dtype: torch.dtype) -> "Edges":
        """The edges of a graph with the self loops and the normalisation of a layer."""
        matrix = adjacency(graph, norm=layer.edge_norm, self_loops=layer.self_loops)
        source = torch.from_numpy(matrix.indices.astype(np.int64))
        destination = torch.from_numpy(np.repeat(np.arange(graph.num_vertices), np.diff(matrix.indptr)))
        weight = torch.ones(len(source), dtype=dtype)
        if matrix.values is not None:
            weight = weight * torch.from_numpy(matrix.values.copy()).to(dtype)
        if matrix.row_scale is not None:
            weight = weight * torch.from_numpy(matrix.row_scale).to(dtype)[destination]
        if matrix.col_scale is not None:
            weight = weight * torch.from_numpy(matrix.col_scale).to(dtype)[source]
        return cls(source, destination, weight, graph.num_vertices)

    def reduce(self, messages: Tensor, how: str) -> Tensor:
        """Messages combined at their destinations: torch's own scatter_reduce."""
        out = torch.zeros(self.num_vertices, messages.shape[1], dtype=messages.dtype)
        index = self.destination[:, None].expand_as(messages)
        return out.scatter_reduce(
            0, index, messages, {"sum": "sum", "mean": "mean", "max": "amax"}[how], include_self=False
        )

    def softmax(self, scores: Tensor) -> Tensor:
        """The softmax of each head's scores over the in-edges of each vertex."""
        largest = self.reduce(scores.detach(), "max")[self.destination]
        weights = (scores - largest).exp()
        return weights / self.reduce(weights, "sum")[self.destination]


def forward(program: Program, graph: Graph, *, drop: tuple[int, int] | None = None) -> Tensor:
    """Logits of every vertex; ``drop`` = (seed, epoch) applies that epoch's dropout."""
    dtype = next(program.parameters()).dtype
    features = graph.features
    dense = features.to_dense() if isinstance(features, SparseFeatures) else np.array(features)
    x = torch.from_numpy(dense).to(dtype)
    for index in range(program.num_layers):
        layer = deepcopy_plain(program.layer(index))
        x = _layer(layer, index, x, graph, Edges.of(graph, layer, dtype), drop)
    return x


def deepcopy_plain(layer: Layer) -> Layer:
    """The layer itself, in its usual order: parameters are shared, so that gradients reach the program."""
    plain = deepcopy(layer, memo={id(p): p for p in layer.parameters()})
    plain.transform_first = type(layer).transforms_first_by_default
    return plain


def _layer(layer: Layer, index: int, x: Tensor, graph: Graph, edges: Edges, drop: tuple[int, int] | None) -> Tensor:
    if drop is not None and layer.dropout > 0:
        x = x * _mask(graph, x, Dropout(layer.dropout, *drop, index))
    prepared = layer.prepare(x) if layer.prepares else x
    parts = prepared if isinstance(prepared, tuple) else (prepared,)
    if isinstance(layer, GAT):
        keep = _attention_mask(layer, edges, None if drop is None else Dropout(layer.attention_dropout, *drop, index))
        gathered = _attention(layer, parts, edges, keep)
    else:
        gathered = _gathered(layer, parts, edges)
    own = {"input": x, "prepared": parts[0], "none": x}[layer.own]
    return layer.finish(x, layer.apply_vertex(own, gathered))


def _attention(layer: GAT, parts: tuple[Tensor, ...], edges: Edges, keep: Tensor | float) -> Tensor:
    z, s_src, s_dst = parts
    logits = torch.nn.functional.leaky_relu(s_src[edges.source] + s_dst[edges.destination], layer.slope)
    alpha = edges.softmax(logits) * keep
    messages = z.view(-1, layer.heads, layer.head_columns)[edges.source] * alpha[:, :, None]
    return edges.reduce(messages.flatten(1), "sum")


def _gathered(layer: Layer, parts: tuple[Tensor, ...], edges: Edges) -> Tensor:
    reduction, values = reduction_of(layer), parts
    if layer.has_apply_edge:
        made = layer.apply_edge(parts[0][edges.source], parts[-1][edges.destination], edges.weight[:, None])
        values = made if isinstance(made, tuple) else (made,)
    if reduction.reference is not None:
        return reduction.reference(layer, values, edges)
    if layer.has_apply_edge:
        return _reduced(layer, reduction.name, values, edges)
    if reduction.name == "max":
        return edges.reduce(parts[0][edges.source], "max")
    # A mean is a sum whose weights are divided by the in-degree.
    return edges.reduce(parts[0][edges.source] * edges.weight[:, None], "sum")


def _reduced(layer: Layer, how: str, messages: tuple[Tensor, ...], edges: Edges) -> Tensor:
    if how != "softmax":
        return edges.reduce(messages[0], how)
    message, score = messages
    alpha = edges.softmax(score)[:, :, None]
    by_head = message.reshape(len(message), layer.heads, -1)
    return edges.reduce((by_head * alpha).flatten(1), "sum")


def _mask(graph: Graph, x: Tensor, drop: Dropout) -> Tensor:
    ones = np.ones(x.shape, np.float32)
    ids = np.arange(graph.num_vertices, dtype=np.int32)
    reference.dropout(ones, ones, ids, 0, len(ones), drop=drop)
    return torch.from_numpy(ones).to(x.dtype)


def _attention_mask(layer: GAT, edges: Edges, drop: Dropout | None) -> Tensor | float:
    if drop is None or drop.p == 0:
        return 1.0
    destination, source = (part.numpy().astype(np.int32) for part in (edges.destination, edges.source))
    return torch.from_numpy(reference.kept_edges(drop, destination, source, layer.heads)).to(edges.weight.dtype)


@dataclass(frozen=True)
class ReferenceRun:
    """Losses before each step, and the logits after the last."""

    losses: list[float]
    logits: Tensor
    program: Program


def loss_of(program: Program, graph: Graph, *, drop: tuple[int, int] | None = None) -> Tensor:
    """The training loss of a program on a graph."""
    assert graph.labels is not None
    kind = "bce" if graph.multilabel else "cross_entropy"
    logits = forward(program, graph, drop=drop)
    labels = torch.from_numpy(graph.labels.astype(np.float64 if graph.multilabel else np.int64))
    labels = labels.to(logits.dtype) if graph.multilabel else labels
    labels[~torch.from_numpy(graph.train_mask.copy())] = IGNORED
    count = int(graph.train_mask.sum()) * (graph.num_classes if graph.multilabel else 1)
    return loss_sum(kind, logits, labels) / count


def train_reference(
    graph: Graph,
    program: Program,
    *,
    epochs: int,
    lr: float = 0.01,
    weight_decay: float = 0.0,
    seed: int = 0,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
) -> ReferenceRun:
    """Full-batch training of a copy of the program, as a PyTorch user would write it."""
    program = deepcopy(program)
    steps = optimizer(program.parameters(), lr=lr, weight_decay=weight_decay)
    losses = []
    for epoch in range(epochs):
        steps.zero_grad()
        loss = loss_of(program, graph, drop=(seed, epoch))
        loss.backward()  # type: ignore[no-untyped-call]
        steps.step()
        losses.append(float(loss.detach()))
    with torch.no_grad():
        return ReferenceRun(losses, forward(program, graph), program)
