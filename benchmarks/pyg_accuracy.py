"""PyG's own GCNConv and GATConv on a planetoid graph: the comparison for `benchmarks.accuracy`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch_geometric.nn import GATConv, GCNConv

from benchmarks.peers import Stack


def test_accuracy(data: Any, settings: Any, seed: int) -> float:
    """Train on data.train_mask, score data.test_mask with the last or the best-on-validation weights."""
    torch.manual_seed(seed)
    model = stack(settings, data.num_features, int(data.y.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
    best, scored = -1.0, 0.0
    for epoch in range(settings.epochs):
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
        if settings.keep == "best" or epoch == settings.epochs - 1:
            validation, test = evaluate(model, data)
            if validation > best or settings.keep == "last":
                best, scored = validation, test
    return scored


@torch.no_grad()
def evaluate(model: torch.nn.Module, data: Any) -> tuple[float, float]:
    """Accuracy on validation and on test vertices."""
    model.eval()
    right = model(data.x, data.edge_index).argmax(1) == data.y
    return float(right[data.val_mask].float().mean()), float(right[data.test_mask].float().mean())


def stack(settings: Any, num_features: int, num_classes: int) -> Stack:
    """The two layers that settings describe."""
    if settings.model == "gcn":
        first = GCNConv(num_features, settings.hidden, cached=True)
        second = GCNConv(settings.hidden, num_classes, cached=True)
        return Stack(first, second, F.relu, settings.dropout)
    width = settings.hidden * settings.heads
    first = GATConv(num_features, settings.hidden, heads=settings.heads, dropout=settings.dropout)
    second = GATConv(width, num_classes, heads=settings.output_heads, concat=False, dropout=settings.dropout)
    return Stack(first, second, F.elu, settings.dropout)
