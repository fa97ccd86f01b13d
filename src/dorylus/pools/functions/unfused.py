"""Without task fusion: the last ApplyVertex, the loss and ∇AV run as three separate steps."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dorylus.pools.functions.tasks import columns_of
from dorylus.pools.pool import TensorPool
from dorylus.saga import Call, Mode, Reply, Targets, loss_sum


@dataclass(eq=False)
class _Halves:
    """A call for the loss, and the half of it that is in flight."""

    call: Call
    under_way: Call
    cancelled: bool = False


class Unfused:
    """Wraps a pool: a call for the loss becomes a forward call, the loss's gradient in this process, a gradient call.

    The numbers are the same. It costs one more invocation, and the logits travel once more in each direction. The
    wrapped pool sees two separate tasks, so a wrapper that retries calls goes inside this one. ``keep``: the forward
    call keeps what its gradient needs.
    """

    def __init__(self, inner: TensorPool, *, keep: bool = False) -> None:
        self._inner, self._keep = inner, keep
        self._open: dict[int, _Halves] = {}  # calls for the loss, by their id

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        """Submit the call, in two halves if it is one for the loss."""
        if call.mode is not Mode.LOSS or not call.inputs[0].shape[0]:
            self._inner.submit(call, done, failed)
            return
        targets = call.targets
        assert targets is not None

        def submit_gradient(forward: Reply) -> None:
            try:
                loss, cotangent = grad_of_loss(targets, forward.outputs[0])
                others = (None,) * (len(forward.outputs) - 1)
                backward = replace(call, mode=Mode.GRADIENT, targets=None, cotangents=(cotangent, *others), columns=())
                halves.under_way = gradient = replace(backward, kept=forward.kept)
                if not halves.cancelled:
                    self._inner.submit(gradient, lambda reply: answer(done, replace(reply, loss=loss)), fail)
                if halves.cancelled:  # cancelled during submit, perhaps before the inner pool had it
                    self._inner.cancel([gradient])
            except Exception as error:
                fail(error)

        def answer(callback: Callable[[Any], None], result: Any) -> None:
            self._open.pop(id(call), None)
            callback(result)

        def fail(error: BaseException) -> None:
            answer(failed, error)

        forward = replace(call, mode=Mode.FORWARD, targets=None, columns=columns_of(call), keep=self._keep)
        halves = self._open[id(call)] = _Halves(call, forward)
        self._inner.submit(forward, submit_gradient, fail)

    def cancel(self, calls: Collection[Call]) -> None:
        """Have the inner pool cancel these calls, or the half of each that is in flight."""
        inside = []
        for call in calls:
            halves = self._open.pop(id(call), None)
            if halves is None:
                inside.append(call)
            else:
                halves.cancelled = True  # before the half is read: another thread may be about to submit the second
                inside.append(halves.under_way)
        self._inner.cancel(inside)

    def close(self) -> None:
        """Close the inner pool."""
        self._inner.close()


def grad_of_loss(targets: Targets, logits: Tensor) -> tuple[float, Tensor]:
    """The loss of some rows, and its gradient by their logits."""
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        loss = loss_sum(targets.loss, leaf, targets.labels) / targets.total
        (cotangent,) = torch.autograd.grad(loss, leaf)
    return float(loss.detach()), cotangent
