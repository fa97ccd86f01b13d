"""A layer of one's own with a dense ApplyEdge: each edge decides, column by column, how much of its message to let in.

y_v = W_own x_v + mean over in-edges u -> v of sigmoid(G [W x_u, W x_v]) * W x_u
"""

import torch
from torch import Tensor, nn

import dorylus


class Gated(dorylus.Layer):
    """Gated convolution: the gate is learnt from both ends of the edge."""

    reduce = "mean"
    own = "input"

    def __init__(self, in_columns: int, out_columns: int, **finish: object) -> None:
        super().__init__(in_columns, out_columns, **finish)
        self.lin = nn.Linear(in_columns, out_columns)
        self.own_lin = nn.Linear(in_columns, out_columns)
        self.gate = nn.Linear(2 * out_columns, out_columns)

    def prepare(self, x: Tensor) -> Tensor:
        """What neighbours see of a vertex."""
        return self.lin(x)

    def apply_edge(self, source: Tensor, destination: Tensor, weight: Tensor) -> Tensor:
        """The message of each edge."""
        return torch.sigmoid(self.gate(torch.cat([source, destination], dim=1))) * source

    def apply_vertex(self, own: Tensor, gathered: Tensor) -> Tensor:
        """The vertex's own row joins what it gathered."""
        return self.own_lin(own) + gathered


# Four of five edges lead anywhere: a convolution averages strangers in, a gate can learn to look away.
graph = dorylus.communities(num_vertices=3_000, average_degree=10, homophily=0.2, signal=3.0)
torch.manual_seed(0)
gated = dorylus.Program([Gated(graph.num_features, 16, activation="relu", dropout=0.2), Gated(16, graph.num_classes)])

for name, model in {"gated": gated, "gcn": dorylus.gcn(hidden=16, dropout=0.2)}.items():
    result = dorylus.train(graph, model, epochs=30, lr=0.02)
    print(f"{name:6} loss {result.losses[0]:.3f} -> {result.losses[-1]:.3f}, test accuracy {result.test_accuracy:.1%}")
