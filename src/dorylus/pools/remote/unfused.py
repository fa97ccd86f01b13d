"""Task fusion switched off: the last ApplyVertex, the loss and ∇AV as the three things they are."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from dorylus.pools.pool import TensorPool
from dorylus.pools.remote.outcome import columns_of
from dorylus.saga.dense import Call, Mode, Reply, Targets, loss_sum


class Unfused:
    """A pool around a pool: a call for the loss becomes a forward call, the loss's gradient here, a gradient call.

    Same numbers, one invocation and one trip of the logits there and back more. Both calls are tasks of their own to
    the pool inside, so whatever tries calls again belongs there. ``keep``: the forward call is asked for what its
    gradient needs.
    """

    def __init__(self, inner: TensorPool, *, keep: bool = False) -> None:
        self._inner, self._keep = inner, keep

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        """Hand the call on, cut in two if it is one for the loss."""
        if call.mode is not Mode.LOSS or not call.inputs[0].shape[0]:
            self._inner.submit(call, done, failed)
            return
        targets = call.targets
        assert targets is not None

        def go_on(forward: Reply) -> None:
            try:
                loss, cotangent = grad_of_loss(targets, forward.outputs[0])
                others = (None,) * (len(forward.outputs) - 1)
                backward = replace(call, mode=Mode.GRADIENT, targets=None, cotangents=(cotangent, *others), columns=())
                gradient = replace(backward, kept=forward.kept)
                self._inner.submit(gradient, lambda reply: done(replace(reply, loss=loss)), failed)
            except Exception as error:
                failed(error)

        forward = replace(call, mode=Mode.FORWARD, targets=None, columns=columns_of(call), keep=self._keep)
        self._inner.submit(forward, go_on, failed)

    def close(self) -> None:
        """Close the pool inside."""
        self._inner.close()


def grad_of_loss(targets: Targets, logits: Tensor) -> tuple[float, Tensor]:
    """The loss of some rows, and its gradient by their logits."""
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        loss = loss_sum(targets.loss, leaf, targets.labels) / targets.total
        (cotangent,) = torch.autograd.grad(loss, leaf)
    return float(loss.detach()), cotangent
