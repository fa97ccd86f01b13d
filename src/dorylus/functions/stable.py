"""Operations that ONNX's own recipes get wrong far from zero, put together from ones that stay right.

The recipe for the logarithm of a sigmoid takes the sigmoid first: in float32 it is 0 below about -18, and its logarithm
-inf, where the right answer is about the number itself.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor

_REDUCED: Final[Mapping[int, Callable[[Tensor], Tensor]]] = {0: lambda x: x, 1: torch.mean, 2: torch.sum}


def _log_sigmoid(x: Tensor) -> Tensor:
    return torch.clamp(x, max=0) - torch.log1p(torch.exp(-torch.abs(x)))


def _log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    return _log_sigmoid(x), torch.exp(-torch.abs(x))  # the second is what the gradient is computed from


def _binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    positive = target if pos_weight is None else target * pos_weight
    loss = -(positive * _log_sigmoid(x) + (1 - target) * _log_sigmoid(-x))
    return _REDUCED[reduction](loss if weight is None else loss * weight)


STABLE: Final[Mapping[Any, Any]] = {
    torch.ops.aten.log_sigmoid_forward.default: _log_sigmoid_forward,
    torch.ops.aten.binary_cross_entropy_with_logits.default: _binary_cross_entropy_with_logits,
}
