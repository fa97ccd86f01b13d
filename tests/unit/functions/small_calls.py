"""Calls made by hand, of bodies small enough to export quickly."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dorylus.pipeline import Kind, Task
from dorylus.saga.dense import IGNORED, Call, Mode, Targets
from dorylus.saga.stages import Body

TASK = Task(epoch=0, phase=0, interval=0, step=0, kind=Kind.APPLY_VERTEX)
ROWS = 9


class Two(nn.Module):
    """Two inputs, two outputs, a weight used twice, a frozen weight, and an unused weight."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(5, 3)
        self.again = nn.Linear(5, 3)
        self.again.weight = self.mix.weight
        self.frozen = nn.Parameter(torch.randn(3), requires_grad=False)
        self.idle = nn.Parameter(torch.randn(2))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """(3 columns, 1 column); the second does not depend on y."""
        both = torch.cat([x, y], 1)
        return torch.tanh(self.mix(both) + self.again(both)) * self.frozen, x.sum(1, keepdim=True)


class Runs(nn.Module):
    """A linear map of six columns to four, and then whatever a function makes of them."""

    def __init__(self, function: Callable[["Runs", Tensor], Any]) -> None:
        super().__init__()
        self.function = function
        self.lin = nn.Linear(6, 4)
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: Tensor) -> Any:
        """What the function makes of W x + b."""
        return self.function(self, self.lin(x))


def call_of(
    module: nn.Module,
    widths: Sequence[int],
    mode: Mode = Mode.FORWARD,
    *,
    needs_grad: Sequence[bool] | None = None,
    cotangents: Sequence[bool] | None = None,
    loss: str = "cross_entropy",
    num_rows: int = ROWS,
    label: str = "a small body",
) -> Call:
    """A call on random rows of these widths; ``cotangents`` marks the outputs that have one (default: all)."""
    random = torch.Generator().manual_seed(num_rows)
    body = Body(module, label)
    weights = {name: w.detach().clone().requires_grad_(w.requires_grad) for name, w in module.named_parameters()}
    inputs = tuple(torch.randn(num_rows, width, generator=random) for width in widths)
    with torch.no_grad():
        made = body(weights, tuple(torch.zeros(2, width) for width in widths))
    given: tuple[Tensor | None, ...] = ()
    if mode is Mode.GRADIENT:
        has_cotangent = cotangents or [True] * len(made)
        drawn = [torch.randn(num_rows, output.shape[1], generator=random) for output in made]
        given = tuple(each if has else None for each, has in zip(drawn, has_cotangent, strict=True))
    targets = _targets(loss, made[0].shape[1], num_rows, random) if mode is Mode.LOSS else None
    columns = tuple(output.shape[1] for output in made) if mode is Mode.FORWARD else ()
    return Call(TASK, mode, body, weights, inputs, tuple(needs_grad or [True] * len(widths)), given, targets, columns)


def _targets(loss: str, num_classes: int, num_rows: int, random: torch.Generator) -> Targets:
    shape = (num_rows,) if loss == "cross_entropy" else (num_rows, num_classes)
    labels = torch.randint(num_classes if loss == "cross_entropy" else 2, shape, generator=random)
    labels[torch.rand(shape, generator=random) < 0.3] = IGNORED
    return Targets(loss, labels if loss == "cross_entropy" else labels.float(), 6.0)
