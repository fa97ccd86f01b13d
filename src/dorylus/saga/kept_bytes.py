"""How much autograd keeps of a body's forward run until its gradient: found by a run over a few rows."""

from collections.abc import MutableMapping
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from dorylus.saga.stages import ApplyVertex

ROWS = 8
FLOAT = 4

_FOUND: MutableMapping[nn.Module, dict[tuple[tuple[int, bool], ...], int]] = WeakKeyDictionary()  # by body and inputs


def kept_bytes(stage: ApplyVertex) -> int:
    """Bytes a row that are kept beside the rows that were read: outputs, and whatever lies between.

    A body that has its own ideas of rows of zeros is taken to keep its outputs. Found once for each body: a plan is
    made for one limit after the other.
    """
    found = _FOUND.setdefault(stage.body.module, {})
    inputs = tuple((slot.columns, slot.needs_grad) for slot in stage.inputs)
    if inputs not in found:
        try:
            found[inputs] = _found(stage) // ROWS
        except Exception:  # a user's body may raise anything; in a run it says so itself
            found[inputs] = FLOAT * sum(slot.columns for slot in stage.outputs)
    return found[inputs]


def _found(stage: ApplyVertex) -> int:
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
