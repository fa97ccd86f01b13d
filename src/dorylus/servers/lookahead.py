"""What weights an interval uses that runs ahead of the updates: the latest ones, moved on by what momentum will repeat.

With bounded staleness an interval may start an epoch while others are still at work on the one before, so the latest
weights lack a step or more. A gradient taken there is late, and late gradients swing with momentum. But of the missing
steps a part is known: an optimiser with momentum m repeats m times its last step in the next, m^2 times in the one
after. Guessing the weights so is weight prediction (SpecTrain: Chen, Yang and Cheng 2018), with only the known part.
"""

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]
Momenta = Mapping[str, float]


def move_ahead(before: Weights, latest: Weights, momenta: Momenta, steps: int) -> dict[str, Tensor]:
    """The latest weights after what momentum repeats in ``steps`` more steps of the one that led there from ``before``.

    Gives leaves of an autograd graph, for the parameters that have a momentum and were stepped.
    """
    moved = {}
    for name, momentum in momenta.items():
        weight = latest[name]
        if momentum and weight is not before[name]:
            # Not by sum(), which adds floats in another way from Python 3.12 on.
            repeated = reduce(add, (momentum**step for step in range(1, steps + 1)), 0.0)
            guess = torch.lerp(before[name].detach(), weight.detach(), 1 + repeated)
            moved[name] = guess.requires_grad_(weight.requires_grad)
    return moved


def momentum_of(group: Mapping[str, Any]) -> float:
    """The momentum of an optimiser's parameter group, under the names torch's optimisers give it; 0 for none."""
    return float(group.get("momentum") or group.get("betas", (0.0,))[0])
