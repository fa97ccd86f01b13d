"""A dense task as a pure function of named tensors, which is traced to make its program.

The arithmetic is that of :mod:`dorylus.saga.dense`, written so that a tracer can follow it: no number leaves a tensor.
Rows are dense here: bodies that take sparse rows give the same on dense ones. A gradient that receives saved arrays
runs the body too, but replaces what autograd saves by them: no output depends on that run, so it is not translated.
"""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel

from dorylus.functions.program import ArrayRole, called
from dorylus.saga import IGNORED, Body, Call, Mode, Saved, Targets, loss_sum

_TRAVELS = frozenset({torch.float32, torch.bool})
_SHARE_IGNORED = 0.25  # of the labels of example rows
_TOTAL = 1.5
_SIZES = (3, 5)  # a size that follows the rows is not the same in both


class SavedTensors:
    """Records what autograd saves under its ``hooks``, and returns the tensors of ``instead`` in its place, if any."""

    def __init__(self, instead: Sequence[Tensor | None] = ()) -> None:
        self.tensors: list[Tensor] = []
        self._instead = instead

    def hooks(self) -> saved_tensors_hooks:
        """The context to run a body in."""
        return saved_tensors_hooks(self._save, self._load)

    def _save(self, tensor: Tensor) -> int:
        self.tensors.append(tensor.detach())
        return len(self.tensors) - 1

    def _load(self, number: int) -> Tensor:
        instead = self._instead[number] if number < len(self._instead) else None
        return self.tensors[number] if instead is None else instead


@dataclass(frozen=True)
class Source:
    """The source of a saved tensor for the gradient: a matrix by name. ``axis`` is the tensor's axis of rows."""

    name: str
    axis: int
    shape: tuple[int, ...]  # of the tensor without that axis
    dtype: torch.dtype

    def matrix(self, tensor: Tensor) -> Tensor:
        """The matrix that holds a tensor."""
        rows = tensor.movedim(self.axis, 0) if self.axis else tensor
        return (rows.flatten(1) if self.shape else rows.unsqueeze(1)).to(torch.float32)

    def tensor(self, matrix: Tensor) -> Tensor:
        """The tensor that a matrix holds."""
        rows = matrix.to(self.dtype)
        if len(self.shape) != 1:
            rows = rows.reshape(rows.shape[0], *self.shape)
        return rows.movedim(0, self.axis) if self.axis else rows


@dataclass(frozen=True)
class TracedRun:
    """A run on some rows: the body's inputs and outputs, and the tensors that autograd saved."""

    num_rows: int
    given: Sequence[Tensor]
    outputs: Sequence[Tensor]
    saved: Sequence[Tensor]


def sources(few: TracedRun, more: TracedRun) -> tuple[Source | None, ...]:
    """The source of each saved tensor for the gradient; None: it is recomputed. Found by two runs on different rows."""
    taken = {_memory(tensor) for tensor in more.given}
    names = {_content(output, 0): called(ArrayRole.OUTPUT, index) for index, output in enumerate(more.outputs)}
    num_outputs = len(names)
    found: list[Source | None] = []
    for small, large in zip(few.saved, more.saved, strict=False):  # if their numbers differ, so do the programs
        axis = _rows_axis(small, few.num_rows, large, more.num_rows)
        if axis is None or large.dtype not in _TRAVELS or _memory(large) in taken:
            found.append(None)
        else:
            name = names.setdefault(_content(large, axis), called(ArrayRole.SAVED, len(names) - num_outputs))
            found.append(Source(name, axis, tuple(large.movedim(axis, 0).shape[1:]), large.dtype))
    return tuple(found)


def place(tensor: Tensor) -> object:
    """The address of a tensor: autograd keeps another object over the same memory."""
    return (_memory(tensor), tensor.storage_offset(), tensor.dtype, tuple(tensor.shape), tensor.stride())


def _memory(tensor: Tensor) -> Any:
    return tensor.untyped_storage().data_ptr()


def _content(tensor: Tensor, axis: int) -> object:
    """The same for tensors that are the same rows, of any shape of a row."""
    if axis == 0 and tensor.is_contiguous():
        return (_memory(tensor), tensor.storage_offset(), tensor.dtype, tensor.numel())
    return place(tensor)


def _rows_axis(small: Tensor, few: int, large: Tensor, more: int) -> int | None:
    """The only axis that follows the number of rows; None if there is none, or if another size changes too."""
    if small.dim() != large.dim():
        return None
    sizes = enumerate(zip(small.shape, large.shape, strict=True))
    changed = {axis: both for axis, both in sizes if both[0] != both[1]}
    return next(iter(changed)) if list(changed.values()) == [(few, more)] else None


def signature(call: Call) -> Hashable:
    """Everything that a call's program depends on: calls with the same signature share one."""
    weights = ((n, tuple(call.weights[n].shape), call.weights[n].requires_grad) for n in call.body.weight_names)
    labels = None if call.targets is None else call.targets.labels
    return (
        call.body,
        call.mode,
        tuple(x.shape[1] for x in call.inputs),
        call.needs_grad if call.mode is not Mode.FORWARD or call.keep else (),
        tuple(None if cotangent is None else cotangent.shape[1] for cotangent in call.cotangents),
        None if call.targets is None else call.targets.loss,
        None if labels is None else (labels.dtype, tuple(labels.shape[1:])),
        tuple(weights),
        _hands_over(call),
    )


class Pure:
    """A call's task, for any number of rows; ``inputs`` and ``outputs`` are the names of what it takes and gives.

    ``kept`` are the outputs of a forward task that its gradient will be handed, with their widths.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self._body = Body(call.body.module, call.body.label)  # a tracer leaves its tensors in the module's copy
        self._sources = self._found_sources() if _hands_over(call) else ()
        handed = self.handed_over(self._drawn(_SIZES[0], 0))
        forward = call.mode is Mode.FORWARD
        widths = {name: rows.shape[1] for name, rows in handed.items()}
        self.kept = widths if forward and _hands_over(call) else None
        self.inputs = _input_names(call) if forward else (*_input_names(call), *handed)
        self.outputs: tuple[str, ...] = ()
        self(*self.arguments(self.example(2)))

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The outputs, in the order of ``outputs``."""
        given = dict(zip(self.inputs, tensors, strict=True))
        made = self._forward(given) if self.call.mode is Mode.FORWARD else self._gradient(given)
        self.outputs = tuple(made)
        return tuple(tensor.clone() for tensor in made.values())  # an output may be an input, or another output

    def example(self, num_rows: int, seed: int = 0) -> Call:
        """A call like this one on random rows, with some labels ignored and weights other than zero."""
        call = self._drawn(num_rows, seed)
        if self.call.mode is Mode.FORWARD or not _hands_over(self.call):
            return call
        return replace(call, kept=Saved(call.inputs, self.handed_over(call)))

    def handed_over(self, call: Call) -> dict[str, Tensor]:
        """The arrays that the forward run of such a call passes to its gradient, by name."""
        return self._named(self._traced_run(call).saved) if self._sources else {}

    def arguments(self, call: Call) -> tuple[Tensor, ...]:
        """The tensors of a call like this one, in the order of ``inputs``."""
        of: dict[str, Any] = self._rows_and_weights(call)
        of |= {called(ArrayRole.COTANGENT, index): given for index, given in enumerate(call.cotangents)}
        of |= call.kept.arrays if isinstance(call.kept, Saved) else {}
        if call.targets is not None:
            of |= {
                called(ArrayRole.LABELS): call.targets.labels,
                called(ArrayRole.TOTAL): torch.tensor(call.targets.total),
            }
        return tuple(of[name] for name in self.inputs)

    def _rows_and_weights(self, call: Call) -> dict[str, Any]:
        rows = {called(ArrayRole.ROWS, index): rows for index, rows in enumerate(call.inputs)}
        return rows | {called(ArrayRole.WEIGHT, name): weight.detach() for name, weight in call.weights.items()}

    def _drawn(self, num_rows: int, seed: int) -> Call:
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
        like = self.call
        return Call(
            like.task, like.mode, self._body, weights, inputs, like.needs_grad, cotangents, targets, like.columns
        )

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
        saved = SavedTensors()
        if self.kept is None:
            with torch.no_grad():
                outputs = self._run(given)
        else:
            outputs = self._traced({**given, **self._leaves(given)}, saved)
        made = {called(ArrayRole.OUTPUT, index): output.detach() for index, output in enumerate(outputs)}
        return made | self._named(saved.tensors)

    def _gradient(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        leaves, made, cotangents = self._leaves(given), {}, None
        handed = [None if source is None else source.tensor(given[source.name]) for source in self._sources]
        outputs = self._traced({**given, **leaves}, SavedTensors(handed) if handed else None)
        if self.call.mode is Mode.LOSS:
            with torch.enable_grad():
                loss = self._loss(outputs[0], given)
            made[called(ArrayRole.LOSS)] = loss.detach()
            tops = [loss]
        else:
            pairs = _pairs(outputs, given)
            tops, cotangents = [top for top, _ in pairs], [cotangent for _, cotangent in pairs]
        if tops and leaves and tops[0].requires_grad:
            grads = torch.autograd.grad(tops, list(leaves.values()), cotangents, allow_unused=True)
            named = zip(_differentiated(self.call).values(), grads, strict=True)
            made |= {name: grad for name, grad in named if grad is not None}
        return made

    def _leaves(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: given[name].detach().requires_grad_() for name in _differentiated(self.call)}

    def _traced(self, given: Mapping[str, Tensor], saved: SavedTensors | None) -> tuple[Tensor, ...]:
        with torch.enable_grad(), nullcontext() if saved is None else saved.hooks():
            return self._run(given)

    def _run(self, given: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        weights = {name: given[called(ArrayRole.WEIGHT, name)] for name in self.call.body.weight_names}
        rows = tuple(given[called(ArrayRole.ROWS, index)] for index in range(len(self.call.inputs)))
        with sdpa_kernel(SDPBackend.MATH):  # ONNX lacks the fused attention that torch would use
            return self._body(weights, rows)

    def _loss(self, logits: Tensor, given: Mapping[str, Tensor]) -> Tensor:
        assert self.call.targets is not None
        return (
            loss_sum(self.call.targets.loss, logits, given[called(ArrayRole.LABELS)]) / given[called(ArrayRole.TOTAL)]
        )

    def _found_sources(self) -> tuple[Source | None, ...]:
        few, more = (self._traced_run(self._drawn(size, 0)) for size in _SIZES)
        return sources(few, more)

    def _traced_run(self, call: Call) -> TracedRun:
        given, saved = self._rows_and_weights(call), SavedTensors()
        given |= self._leaves(given)
        outputs = self._traced(given, saved)
        return TracedRun(call.inputs[0].shape[0], tuple(given.values()), outputs, saved.tensors)

    def _named(self, saved: Sequence[Tensor]) -> dict[str, Tensor]:
        """The tensors that autograd saved, by name."""
        pairs = zip(self._sources, saved, strict=False)
        return {source.name: source.matrix(tensor) for source, tensor in pairs if source is not None}


def _hands_over(call: Call) -> bool:
    """Whether a call is for a forward task that passes arrays to its gradient, or for such a gradient."""
    return call.keep if call.mode is Mode.FORWARD else isinstance(call.kept, Saved)


def _input_names(call: Call) -> tuple[str, ...]:
    names = [called(ArrayRole.ROWS, index) for index in range(len(call.inputs))]
    names += [called(ArrayRole.COTANGENT, index) for index, given in enumerate(call.cotangents) if given is not None]
    if call.targets is not None:
        names += [called(ArrayRole.LABELS), called(ArrayRole.TOTAL)]
    return (*names, *(called(ArrayRole.WEIGHT, name) for name in call.body.weight_names))


def _differentiated(call: Call) -> dict[str, str]:
    """The inputs that need a gradient, and the names of those gradients."""
    rows = {
        called(ArrayRole.ROWS, k): called(ArrayRole.INPUT_GRAD, k) for k, needed in enumerate(call.needs_grad) if needed
    }
    trained = (name for name in call.body.weight_names if call.weights[name].requires_grad)
    return rows | {called(ArrayRole.WEIGHT, name): called(ArrayRole.WEIGHT_GRAD, name) for name in trained}


def _pairs(outputs: tuple[Tensor, ...], given: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Each output that needs a gradient, with its cotangent."""
    named = ((output, given.get(called(ArrayRole.COTANGENT, index))) for index, output in enumerate(outputs))
    return [(output, cotangent) for output, cotangent in named if cotangent is not None and output.requires_grad]
