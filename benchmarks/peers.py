"""The alternatives: PyG as users write it, PyG at its fastest on a CPU, DGL where installed.

Each peer is built in a process of its own from the arrays of `shapes.prepare`, and trains whole epochs on request.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from benchmarks.shapes import Arrays, Shape, read_arrays


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How every contender trains."""

    lr: float = 0.01
    weight_decay: float = 5e-4
    dropout: float = 0.0
    threads: int = 2
    seed: int = 0


class Stack(nn.Module):
    """Dropout, convolution, activation; dropout, convolution: the two layers of every tutorial."""

    def __init__(self, first: nn.Module, second: nn.Module, activation: Callable[[Tensor], Tensor], dropout: float):
        super().__init__()
        self.first, self.second, self.activation, self.dropout = first, second, activation, dropout

    def forward(self, x: Tensor, edges: object) -> Tensor:
        x = F.dropout(x, self.dropout, self.training)
        x = self.activation(self.first(x, edges))
        x = F.dropout(x, self.dropout, self.training)
        return self.second(x, edges)


class Peer:
    """A model, its data and its optimiser; `epochs(k)` gives the seconds of k training steps on the whole graph."""

    def __init__(self, model: nn.Module, x: Tensor, edges: object, arrays: Arrays, recipe: Recipe):
        self.model, self.x, self.edges = model, x, edges
        self.train_rows = torch.from_numpy(arrays["train"])
        self.labels = torch.from_numpy(arrays["y"])[self.train_rows]
        self.optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
        self.losses: list[float] = []

    def epochs(self, count: int) -> list[float]:
        return [self._epoch() for _ in range(count)]

    def _epoch(self) -> float:
        start = time.perf_counter()
        self.model.train()
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.x, self.edges)[self.train_rows], self.labels)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        return time.perf_counter() - start


def gcn_edge_index(arrays: Arrays, shape: Shape, recipe: Recipe) -> Peer:
    """GCNConv over `edge_index`, normalised once (`cached=True`)."""
    model = Stack(
        GCNConv(shape.num_features, shape.hidden, cached=True),
        GCNConv(shape.hidden, shape.num_classes, cached=True),
        F.relu,
        recipe.dropout,
    )
    return Peer(model, torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["edge_index"]), arrays, recipe)


def gat_edge_index(arrays: Arrays, shape: Shape, recipe: Recipe) -> Peer:
    """GATConv over `edge_index`: 8 heads of 8, then one head of the classes."""
    width = shape.heads * shape.head_width
    model = Stack(
        GATConv(shape.num_features, shape.head_width, heads=shape.heads, dropout=recipe.dropout),
        GATConv(width, shape.num_classes, heads=1, concat=False, dropout=recipe.dropout),
        F.elu,
        recipe.dropout,
    )
    return Peer(model, torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["edge_index"]), arrays, recipe)


class CachedProduct(torch.autograd.Function):
    """Â x whose gradient multiplies by a transpose that was built once, instead of at every backward."""

    @staticmethod
    def forward(ctx, adjacency: Tensor, transpose: Tensor, x: Tensor) -> Tensor:
        ctx.transpose = transpose
        return adjacency @ x

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.transpose @ grad


class SparseInput(nn.Module):
    """The first layer's linear map of constant sparse rows: x Wᵀ, with both orientations of x built once.

    It replaces the map of a layer whose input is x itself, and ignores the dense x that the layer passes.
    """

    def __init__(self, linear: nn.Module, x: Tensor):
        super().__init__()
        self.weight = linear.weight
        row, column = x.nonzero(as_tuple=True)
        values = x[row, column]
        self.x = _csr(row, column, values, x.shape)
        self.transpose = _csr(column, row, values, x.shape[::-1])

    def forward(self, x: Tensor) -> Tensor:
        return CachedProduct.apply(self.x, self.transpose, self.weight.t())


def with_sparse_input(peer: Peer) -> Peer:
    """A peer whose first layer reads x as a torch CSR matrix, and which holds no dense x."""
    peer.model.first.lin = SparseInput(peer.model.first.lin, peer.x)
    peer.x = peer.x.new_empty(len(peer.x), 0)
    return peer


class BestGCNConv(nn.Module):
    """PyG's GCNConv (weights, bias, order) with its propagation replaced by one MKL sparse product each way."""

    def __init__(self, num_inputs: int, num_outputs: int):
        super().__init__()
        conv = GCNConv(num_inputs, num_outputs)
        self.lin, self.bias = conv.lin, conv.bias

    def forward(self, x: Tensor, edges: tuple[Tensor, Tensor]) -> Tensor:
        return CachedProduct.apply(*edges, self.lin(x)) + self.bias


def gcn_best(arrays: Arrays, shape: Shape, recipe: Recipe, *, index: torch.dtype = torch.int32) -> Peer:
    """GCN over a torch CSR adjacency, normalised once, its transpose cached: PyG's best path without pyg-lib."""
    num_vertices = len(arrays["x"])
    edges, weight = gcn_norm(torch.from_numpy(arrays["edge_index"]), num_nodes=num_vertices)
    size = (num_vertices, num_vertices)
    forward = _csr(edges[1], edges[0], weight, size, index)
    backward = _csr(edges[0], edges[1], weight, size, index)
    del edges, weight
    model = Stack(
        BestGCNConv(shape.num_features, shape.hidden),
        BestGCNConv(shape.hidden, shape.num_classes),
        F.relu,
        recipe.dropout,
    )
    return Peer(model, torch.from_numpy(arrays["x"]), (forward, backward), arrays, recipe)


def _csr(row: Tensor, column: Tensor, weight: Tensor, shape: Sequence[int], index: torch.dtype = torch.int32) -> Tensor:
    num_rows, num_columns = shape
    order = torch.argsort(row * num_columns + column)
    indptr = torch.zeros(num_rows + 1, dtype=index)
    indptr[1:] = torch.bincount(row, minlength=num_rows).cumsum(0)
    return torch.sparse_csr_tensor(indptr, column[order].to(index), weight[order], (num_rows, num_columns))


def dgl_peer(arrays: Arrays, shape: Shape, recipe: Recipe, *, attention: bool) -> Peer:
    """DGL's GraphConv or GATConv."""
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else DGL writes a file into the user's home
    import dgl

    graph = dgl.graph(tuple(arrays["edge_index"]), num_nodes=len(arrays["x"])).add_self_loop()
    if attention:
        width = shape.heads * shape.head_width
        first = dgl.nn.GATConv(shape.num_features, shape.head_width, shape.heads, attn_drop=recipe.dropout)
        second = dgl.nn.GATConv(width, shape.num_classes, 1, attn_drop=recipe.dropout)
    else:
        first = dgl.nn.GraphConv(shape.num_features, shape.hidden)
        second = dgl.nn.GraphConv(shape.hidden, shape.num_classes)
    model = Stack(_GraphFirst(first), _GraphFirst(second), F.elu if attention else F.relu, recipe.dropout)
    return Peer(model, torch.from_numpy(arrays["x"]), graph, arrays, recipe)


class _GraphFirst(nn.Module):
    """DGL's argument order turned into PyG's, heads laid side by side."""

    def __init__(self, conv: nn.Module):
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, graph: object) -> Tensor:
        return self.conv(graph, x).flatten(1)


BUILDERS: Mapping[str, Callable[[Arrays, Shape, Recipe], Peer]] = {
    "pyg-gcn-edge_index": gcn_edge_index,
    "pyg-gcn-best": gcn_best,
    "pyg-gcn-best-sparse": lambda *given: with_sparse_input(gcn_best(*given)),
    "pyg-gat-edge_index": gat_edge_index,
    "pyg-gat-edge_index-sparse": lambda *given: with_sparse_input(gat_edge_index(*given)),
    "dgl-gcn": lambda *given: dgl_peer(*given, attention=False),
    "dgl-gat": lambda *given: dgl_peer(*given, attention=True),
}


def build(name: str, folder: Path, shape: Shape, recipe: Recipe) -> Peer:
    """The named peer, ready to train on the arrays in folder."""
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    return BUILDERS[name](read_arrays(folder), shape, recipe)


def dgl_is_here() -> bool:
    """Whether DGL is installed."""
    return find_spec("dgl") is not None
