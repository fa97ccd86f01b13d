"""Plain PyG full-batch training: the independent definition of our losses and logits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from small_graphs import Sample
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, elu, relu

ACTIVATION: dict[str, Callable[[Tensor], Tensor]] = {"gcn": relu, "sage": relu, "gin": relu, "gat": elu}


@dataclass(frozen=True, eq=False)
class Curve:
    """What a run must reproduce."""

    losses: list[float]
    logits: NDArray[np.float32]


class Stack(nn.Module):
    """Convolutions with an activation between them."""

    def __init__(self, convs: Sequence[nn.Module], activation: Callable[[Tensor], Tensor]):
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.activation = activation

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = self.activation(conv(x, *edges))
        return self.convs[-1](x, *edges)


def inputs(sample: Sample, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Features, edge_index and, where there are any, edge weights."""
    edges = [torch.from_numpy(sample.edge_index)]
    if sample.edge_weight is not None:
        edges.append(torch.from_numpy(sample.edge_weight).to(dtype))
    return torch.from_numpy(sample.x).to(dtype), *edges


def loss_of(model: nn.Module, sample: Sample, given: tuple[Tensor, ...]) -> Tensor:
    """Mean cross-entropy over the training vertices."""
    mask = torch.from_numpy(sample.train_mask)
    return cross_entropy(model(*given)[mask], torch.from_numpy(sample.y)[mask])


def train_pyg(model: nn.Module, sample: Sample, *, epochs: int, **adam: Any) -> Curve:
    """Full-batch Adam; every loss is that of the weights before the step."""
    optimizer = torch.optim.Adam(model.parameters(), **adam)
    given = inputs(sample)
    losses = []
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = loss_of(model, sample, given)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return Curve(losses, model(*given).numpy())
