"""How much edge-work an epoch does, against a straightforward implementation of the same program."""

from collections.abc import Callable
from dataclasses import dataclass

from dorylus.saga.layer import Layer
from dorylus.saga.lower import Plan
from dorylus.saga.stages import Gather


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
