"""The bytes an epoch must send, counted straight from the graph: crossing edges, made distinct.

Nothing here is fast, and nothing is shared with the engine but the lowered plan, which has the widths of rows. The
owner of a vertex (``parts``) and its interval are given.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import dorylus
from dorylus.saga.lower import Plan
from dorylus.saga.stages import ApplyEdge, ApplyVertex, Body, Gather, Loss, Scatter, Slot

FLOAT = NUMBER = 4  # bytes of a float32, and of the int32 with the row number of a partial sum
BF16 = 2
ALMOST_ALL = 0.95  # a level whose rows have this share of the edges is not pruned


@dataclass(frozen=True, eq=False)
class TrafficOracle:
    """What one epoch of a plan sends. ``narrow``: rows travel as bfloat16, scores do not."""

    graph: dorylus.Graph
    parts: NDArray[np.int32]
    interval: NDArray[np.int32]
    plan: Plan
    pruned: bool = True
    narrow: bool = False
    parameter_servers: int = 1
    updates: int = 1

    def epoch(self) -> dict[str, int]:
        """{kind: bytes}, kinds of which nothing is sent left out."""
        sent: Counter[str] = Counter()
        for stage in self.plan.stages:
            if isinstance(stage, Scatter):
                sent["ghosts"] += sum(self._rows_forward(slot) for slot in stage.slots)
            elif isinstance(stage, Gather):
                sent["ghost_gradients"] += self._gathered_back(stage)
            else:
                sent["weights"] += self._weights(stage)
                sent["weight_gradients"] += self._weight_gradients(stage)
        sent["weight_exchange"] = (self.parameter_servers - 1) * self.updates * self._all_weights()
        return {kind: num_bytes for kind, num_bytes in sent.items() if num_bytes}

    def needed(self, level: int) -> NDArray[np.bool_]:
        """Which rows are computed at a level: level L those trained on, each level before it also their sources."""
        source, destination = self.graph.edge_list()
        needed = self.graph.train_mask.copy()
        for _ in range(self.plan.num_layers - level):
            needed[source[needed[destination]]] = True
        most = needed[destination].mean() >= ALMOST_ALL
        return np.ones_like(needed) if most or not self.pruned else needed

    def _crossing(self, level: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """(source, destination) of the edges between servers that end in a row computed at a level."""
        source, destination = self.graph.edge_list()
        crossing = (self.parts[source] != self.parts[destination]) & self.needed(level)[destination]
        return source[crossing], destination[crossing]

    def _rows_forward(self, slot: Slot) -> int:
        """A row goes once to every server that gathers it into a row of the next level."""
        source, destination = self._crossing(slot.level + 1)
        return _distinct(source, self.parts[destination]) * slot.columns * (FLOAT if slot.exact else self._width)

    def _gathered_back(self, stage: Gather) -> int:
        """What the gradient needs of a gathered row goes once to every server that a row was gathered from."""
        if stage.over is not None:
            return self._partial_sums(stage.over)
        if not stage.output.needs_grad:
            return 0
        source, destination = self._crossing(stage.output.level)
        return _distinct(destination, self.parts[source]) * self._bytes_of_a_cotangent(stage)

    def _bytes_of_a_cotangent(self, stage: Gather) -> int:
        columns = stage.output.columns
        if stage.layer.reduce == "max":  # the cotangent and the maximum, to be compared with
            return 2 * columns * FLOAT
        scores = 3 * stage.layer.heads * FLOAT if stage.layer.reduce == "attention" else 0
        return columns * self._width + scores

    def _partial_sums(self, stage: ApplyEdge) -> int:
        """Every interval sends, for each remote source of its edges, one number and one row."""
        if not stage.source.needs_grad:
            return 0
        source, destination = self._crossing(stage.level)
        return _distinct(source, self.interval[destination]) * (NUMBER + stage.source.columns * self._width)

    def _weights(self, stage: ApplyVertex | Loss | ApplyEdge) -> int:
        """Every call carries its body's weights: one call forward and one backward, the loss in one for both."""
        calls = 1 if isinstance(stage, Loss) else 2
        return calls * self._num_intervals * sum(weight.nbytes for weight in stage.body.module.parameters())

    def _weight_gradients(self, stage: ApplyVertex | Loss | ApplyEdge) -> int:
        """The backward call of an interval answers with the gradients of the weights it used; without rows, of all."""
        needed = self.needed(stage.level)
        if isinstance(stage, ApplyEdge):
            _, destination = self.graph.edge_list()
            busy = self.interval[destination[needed[destination]]]
            columns = [stage.source.columns, stage.destination.columns, 1]
        else:
            busy, columns = self.interval[needed], [slot.columns for slot in stage.inputs]
        with_rows, intervals = len(np.unique(busy)), len(np.unique(self.interval))
        whole = sum(each.nbytes for each in stage.body.module.parameters() if each.requires_grad)
        return with_rows * _bytes_used(stage.body, columns) + (intervals - with_rows) * whole

    def _all_weights(self) -> int:
        """The bytes of all weights, each once."""
        bodies = [stage.body for stage in self.plan.stages if isinstance(stage, ApplyVertex | Loss | ApplyEdge)]
        return sum(
            weight.nbytes
            for weight in {name: w for body in bodies for name, w in body.module.named_parameters()}.values()
        )

    @property
    def _num_intervals(self) -> int:
        return int(self.interval.max()) + 1

    @property
    def _width(self) -> int:
        return BF16 if self.narrow else FLOAT


def _distinct(*columns: NDArray[Any]) -> int:
    return len(set(zip(*(column.tolist() for column in columns), strict=True)))


def _bytes_used(body: Body, columns: list[int]) -> int:
    """The bytes of the weights that a body's outputs depend on."""
    made = body.module(*(torch.ones(2, width) for width in columns))
    total = sum(part.sum() for part in (made if isinstance(made, tuple) else (made,)))
    weights = list(body.module.parameters())
    if not isinstance(total, torch.Tensor) or not total.requires_grad:
        return 0
    grads = torch.autograd.grad(total, weights, allow_unused=True)
    return sum(weight.nbytes for weight, grad in zip(weights, grads, strict=True) if grad is not None)
