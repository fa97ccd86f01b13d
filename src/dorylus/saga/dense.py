"""Dense tasks as pure functions: a call goes to a pool, a reply comes back. Gradients come from autograd.

The gradient of a body runs it again (rematerialisation), unless the reply of its forward run kept the autograd graph,
which only makes sense on a pool in this process, or the arrays that a gradient on another machine needs. All three
compute the same numbers. ``kept_bytes`` measures how much autograd keeps of a forward run until its gradient.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from dorylus.errors import ConfigError
from dorylus.pipeline import Task
from dorylus.saga.layer import Rows
from dorylus.saga.stages import ApplyVertex, Body

IGNORED = -100  # the label of a row that the loss ignores


class Mode(Enum):
    """What a call computes."""

    FORWARD = "forward"
    GRADIENT = "gradient"
    LOSS = "loss"


@dataclass(frozen=True)
class Targets:
    """What the loss compares with: labels of the rows, and the divisor that makes its sum a mean."""

    loss: str
    labels: Tensor
    total: float

    def of(self, rows: Any) -> "Targets":
        """The targets of some rows: a slice, or row numbers in any order."""
        labels = self.labels[rows]
        if self.loss == "cross_entropy":
            labels = labels.long()
        return Targets(self.loss, labels, self.total)


@dataclass(frozen=True)
class Kept:
    """The autograd graph of a forward run."""

    inputs: tuple[Rows, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Saved:
    """The arrays that a forward run on another machine returned for its gradient, by name, for its pool."""

    inputs: tuple[Rows, ...]
    arrays: Mapping[str, Tensor]


@dataclass(frozen=True)
class Call:
    """One dense task: everything it depends on, and nothing else."""

    task: Task
    mode: Mode
    body: Body
    weights: Mapping[str, Tensor]
    inputs: tuple[Rows, ...]
    needs_grad: tuple[bool, ...] = ()  # for each input, whether its gradient is to be computed
    cotangents: tuple[Tensor | None, ...] = ()
    targets: Targets | None = None
    columns: tuple[int, ...] = ()  # the outputs' widths
    keep: bool = False
    kept: Kept | Saved | None = None


@dataclass(frozen=True)
class Reply:
    """The result of a dense task; ``input_grads`` has one entry per input, None where ``Call.needs_grad`` is false."""

    outputs: tuple[Tensor, ...] = ()
    input_grads: tuple[Tensor | None, ...] = ()
    weight_grads: Mapping[str, Tensor] = field(default_factory=dict)
    loss: float = 0.0
    kept: Kept | Saved | None = None


def run(call: Call) -> Reply:
    """Carry out a call in this thread."""
    if all(x.shape[0] == 0 for x in call.inputs):
        return _nothing(call)
    if call.mode is Mode.FORWARD:
        return _forward(call)
    if call.mode is Mode.LOSS:
        return _loss(call)
    return _gradient(call)


def _forward(call: Call) -> Reply:
    if not call.keep:
        with torch.no_grad():
            return Reply(_fresh(call.body(call.weights, call.inputs), call.inputs))
    kept = _trace(call)
    return Reply(_fresh(tuple(output.detach() for output in kept.outputs), call.inputs), kept=kept)


def _nothing(call: Call) -> Reply:
    """The reply to a call without rows, so that no body has to handle one."""
    outputs = tuple(torch.zeros(0, width) for width in call.columns) if call.mode is Mode.FORWARD else ()
    grads = tuple(torch.zeros(x.shape) if want else None for x, want in zip(call.inputs, call.needs_grad, strict=False))
    # Weights that saw no row have the gradient zero, not None: weight decay and momentum still act on them.
    trained = () if call.mode is Mode.FORWARD else (n for n in call.body.weight_names if call.weights[n].requires_grad)
    return Reply(outputs, grads, {name: torch.zeros_like(call.weights[name]) for name in trained})


def _fresh(made: tuple[Tensor, ...], arguments: tuple[object, ...]) -> tuple[Tensor, ...]:
    """The same tensors, copied where they share memory with the arguments or with each other.

    A body may return an argument, and the gradient of a sum *is* its cotangent; but arguments are parts of matrices
    that other tasks overwrite as soon as this one is done.
    """
    seen = {x.untyped_storage().data_ptr() for x in arguments if isinstance(x, Tensor)}
    fresh = []
    for tensor in made:
        place = tensor.untyped_storage().data_ptr()
        fresh.append(tensor.clone() if place in seen else tensor)
        seen.add(place)
    return tuple(fresh)


def _gradient(call: Call) -> Reply:
    kept = call.kept if isinstance(call.kept, Kept) else _trace(call)
    pairs = [
        (output, cotangent)
        for output, cotangent in zip(kept.outputs, call.cotangents, strict=True)
        if cotangent is not None and output.requires_grad
    ]
    return _differentiate(call, kept, [p[0] for p in pairs], [p[1] for p in pairs], 0.0)


def _loss(call: Call) -> Reply:
    assert call.targets is not None
    kept = _trace(call)
    loss = loss_sum(call.targets.loss, kept.outputs[0], call.targets.labels) / call.targets.total
    return _differentiate(call, kept, [loss], None, float(loss.detach()))


def _trace(call: Call) -> Kept:
    inputs = tuple(
        x.detach().requires_grad_(needs_grad) if isinstance(x, Tensor) else x
        for x, needs_grad in zip(call.inputs, call.needs_grad, strict=True)
    )
    with torch.enable_grad():
        return Kept(inputs, call.body(call.weights, inputs))


def _differentiate(
    call: Call, kept: Kept, outputs: list[Tensor], cotangents: list[Tensor] | None, loss: float
) -> Reply:
    names = [name for name in call.body.weight_names if call.weights[name].requires_grad]
    inputs = [x for x, needs_grad in zip(kept.inputs, call.needs_grad, strict=True) if needs_grad]
    sources = [*inputs, *(call.weights[name] for name in names)]
    if not outputs or not sources:
        return Reply(input_grads=(None,) * len(call.inputs), loss=loss)
    grads = torch.autograd.grad(outputs, sources, cotangents, allow_unused=True)  # type: ignore[arg-type]
    found = [grad for grad in grads[: len(inputs)] if grad is not None]
    own = iter(_fresh(tuple(found), (*call.cotangents, *call.inputs)))
    of_inputs = iter([None if grad is None else next(own) for grad in grads[: len(inputs)]])
    input_grads = tuple(next(of_inputs) if needs_grad else None for needs_grad in call.needs_grad)
    of_weights = zip(names, grads[len(inputs) :], strict=True)
    return Reply((), input_grads, {name: grad for name, grad in of_weights if grad is not None}, loss)


def loss_sum(kind: str, logits: Tensor, labels: Tensor) -> Tensor:
    """The loss summed over rows: cross-entropy, or binary cross-entropy over every class of every row."""
    if kind == "cross_entropy":
        return f.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED)
    if kind == "bce":
        seen = (labels != IGNORED).to(logits.dtype)
        return f.binary_cross_entropy_with_logits(logits, labels * seen, weight=seen, reduction="sum")
    raise ConfigError(f"loss={kind!r}: use 'cross_entropy' (one label a vertex) or 'bce' (many).")


ROWS = 8
FLOAT = 4

_MEASURED: MutableMapping[nn.Module, dict[tuple[tuple[int, bool], ...], int]] = WeakKeyDictionary()  # by body, inputs


def kept_bytes(stage: ApplyVertex) -> int:
    """The bytes per row that autograd keeps beside the rows that were read: outputs and intermediate results.

    Measured once for each body, by a run over a few rows of zeros. A body that fails on them is assumed to keep its
    outputs only.
    """
    measured = _MEASURED.setdefault(stage.body.module, {})
    inputs = tuple((slot.columns, slot.needs_grad) for slot in stage.inputs)
    if inputs not in measured:
        try:
            measured[inputs] = _measure(stage) // ROWS
        except Exception:  # a user's body may raise any exception; the run reports it
            measured[inputs] = FLOAT * sum(slot.columns for slot in stage.outputs)
    return measured[inputs]


def _measure(stage: ApplyVertex) -> int:
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.dim() and tensor.shape[0] == ROWS:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    inputs = tuple(torch.zeros(ROWS, slot.columns, requires_grad=slot.needs_grad) for slot in stage.inputs)
    weights = dict(stage.body.module.named_parameters())
    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), hooks:
        outputs = stage.body(weights, inputs)
        for output in outputs:
            note(output)
        own = {tensor.untyped_storage().data_ptr() for tensor in inputs}
        return sum(size for place, size in sizes.items() if place not in own)
