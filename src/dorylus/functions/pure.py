"""A dense task as a pure function of named tensors: what is traced to make its program.

The arithmetic is that of :mod:`dorylus.saga.dense`, written so that a tracer can follow it: no number leaves a tensor.
Rows are dense here: bodies that take sparse rows give the same on dense ones.
"""

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from dorylus.functions.program import Role, called
from dorylus.saga.dense import IGNORED, Call, Mode, Targets, loss_sum
from dorylus.saga.stages import Body

_SHARE_IGNORED = 0.25  # of the labels of example rows
_TOTAL = 1.5


def signature(call: Call) -> Hashable:
    """What a call's program depends on: calls with the same signature share one program."""
    weights = ((n, tuple(call.weights[n].shape), call.weights[n].requires_grad) for n in call.body.weight_names)
    labels = None if call.targets is None else call.targets.labels
    return (
        call.body,
        call.mode,
        tuple(x.shape[1] for x in call.inputs),
        call.wanted if call.mode is not Mode.FORWARD else (),
        tuple(None if cotangent is None else cotangent.shape[1] for cotangent in call.cotangents),
        None if call.targets is None else call.targets.loss,
        None if labels is None else (labels.dtype, tuple(labels.shape[1:])),
        tuple(weights),
    )


class Pure:
    """A call's task, for any number of rows; ``inputs`` and ``outputs`` are the names of what it takes and gives."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.inputs = _input_names(call)
        self.outputs: tuple[str, ...] = ()
        self._body = Body(call.body.module, call.body.label)  # a tracer leaves its own tensors in the module's copy
        self(*self.arguments(self.example(2)))

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The outputs, in the order of ``outputs``."""
        given = dict(zip(self.inputs, tensors, strict=True))
        made = self._forward(given) if self.call.mode is Mode.FORWARD else self._gradient(given)
        self.outputs = tuple(made)
        return tuple(tensor.clone() for tensor in made.values())  # an output may be an input, or another output

    def example(self, num_rows: int, seed: int = 0) -> Call:
        """A call like this one on random rows, with some labels ignored and weights other than zero."""
        random = torch.Generator().manual_seed(seed)

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, generator=random)

        inputs = tuple(draw(num_rows, x.shape[1]) for x in self.call.inputs)
        cotangents = tuple(None if c is None else draw(num_rows, c.shape[1]) for c in self.call.cotangents)
        weights = {
            name: (weight + 0.1 * draw(*weight.shape)).requires_grad_(self.call.weights[name].requires_grad)
            for name, weight in self._weights().items()
        }
        targets = None if self.call.targets is None else self._targets(self.call.targets, num_rows, random)
        columns, wanted = self.call.columns, self.call.wanted
        return Call(self.call.task, self.call.mode, self._body, weights, inputs, wanted, cotangents, targets, columns)

    def arguments(self, call: Call) -> tuple[Tensor, ...]:
        """The tensors of a call like this one, in the order of ``inputs``."""
        of: dict[str, Any] = {called(Role.ROWS, index): rows for index, rows in enumerate(call.inputs)}
        of |= {called(Role.COTANGENT, index): given for index, given in enumerate(call.cotangents)}
        of |= {called(Role.WEIGHT, name): weight.detach() for name, weight in call.weights.items()}
        if call.targets is not None:
            of |= {called(Role.LABELS): call.targets.labels, called(Role.TOTAL): torch.tensor(call.targets.total)}
        return tuple(of[name] for name in self.inputs)

    def _weights(self) -> dict[str, Tensor]:
        return {name: self.call.weights[name].detach() for name in self.call.body.weight_names}

    def _targets(self, like: Targets, num_rows: int, random: torch.Generator) -> Targets:
        with torch.no_grad():
            rows = tuple(torch.zeros(num_rows, x.shape[1]) for x in self.call.inputs)
            num_classes = self._body(self._weights(), rows)[0].shape[1]
        shape = (num_rows, *like.labels.shape[1:])
        high = num_classes if like.loss == "cross_entropy" else 2
        labels = torch.randint(high, shape, generator=random).to(like.labels.dtype)
        labels[torch.rand(shape, generator=random) < _SHARE_IGNORED] = IGNORED
        return Targets(like.loss, labels, _TOTAL)

    def _forward(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        with torch.no_grad():
            outputs = self._run(given)
        return {called(Role.OUTPUT, index): output for index, output in enumerate(outputs)}

    def _gradient(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        leaves = {grad: given[name].detach().requires_grad_() for name, grad in _differentiated(self.call).items()}
        sources = dict(zip(_differentiated(self.call), leaves.values(), strict=True))
        made, cotangents = {}, None
        with torch.enable_grad():
            outputs = self._run({**given, **sources})
            if self.call.mode is Mode.LOSS:
                loss = self._loss(outputs[0], given)
                made[called(Role.LOSS)] = loss.detach()
                tops = [loss]
            else:
                pairs = _pairs(outputs, given)
                tops, cotangents = [top for top, _ in pairs], [cotangent for _, cotangent in pairs]
        if tops and sources and tops[0].requires_grad:
            grads = torch.autograd.grad(tops, list(leaves.values()), cotangents, allow_unused=True)
            made |= {name: grad for name, grad in zip(leaves, grads, strict=True) if grad is not None}
        return made

    def _run(self, given: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        weights = {name: given[called(Role.WEIGHT, name)] for name in self.call.body.weight_names}
        return self._body(weights, tuple(given[called(Role.ROWS, index)] for index in range(len(self.call.inputs))))

    def _loss(self, logits: Tensor, given: Mapping[str, Tensor]) -> Tensor:
        assert self.call.targets is not None
        return loss_sum(self.call.targets.loss, logits, given[called(Role.LABELS)]) / given[called(Role.TOTAL)]


def _input_names(call: Call) -> tuple[str, ...]:
    names = [called(Role.ROWS, index) for index in range(len(call.inputs))]
    names += [called(Role.COTANGENT, index) for index, given in enumerate(call.cotangents) if given is not None]
    if call.targets is not None:
        names += [called(Role.LABELS), called(Role.TOTAL)]
    return (*names, *(called(Role.WEIGHT, name) for name in call.body.weight_names))


def _differentiated(call: Call) -> dict[str, str]:
    """The inputs whose gradients are asked for, and what those are called."""
    rows = {called(Role.ROWS, k): called(Role.INPUT_GRAD, k) for k, wanted in enumerate(call.wanted) if wanted}
    trained = (name for name in call.body.weight_names if call.weights[name].requires_grad)
    return rows | {called(Role.WEIGHT, name): called(Role.WEIGHT_GRAD, name) for name in trained}


def _pairs(outputs: tuple[Tensor, ...], given: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Each output that has a gradient to give back, with its cotangent."""
    named = ((output, given.get(called(Role.COTANGENT, index))) for index, output in enumerate(outputs))
    return [(output, cotangent) for output, cotangent in named if cotangent is not None and output.requires_grad]
