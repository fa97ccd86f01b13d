import pickle

import numpy as np
import pytest
import torch
from torch import nn

from dorylus.pipeline import Kind, Task
from dorylus.pools.travel import PackedCall, PackedReply, packed_weights, unpacked_weights
from dorylus.saga import dense
from dorylus.saga.dense import Call, Mode, Targets
from dorylus.saga.sparse import SparseRows, linear
from dorylus.saga.stages import Body

TASK = Task(epoch=0, phase=0, interval=0, step=0, kind=Kind.APPLY_VERTEX)


class Map(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(5, 2)

    def forward(self, x):
        return linear(x, self.lin.weight, self.lin.bias)


torch.manual_seed(0)
BODY = Body(Map())
WEIGHTS = {
    name: p.detach().clone().requires_grad_(name.endswith("weight")) for name, p in BODY.module.named_parameters()
}
MATRIX = SparseRows(  # four rows of a matrix of a hundred
    np.arange(40, 50, 2), np.tile(np.arange(5, dtype=np.int32), 100), np.arange(500, dtype=np.float32), 5
)


def a_call(mode, rows):
    dense_rows = isinstance(rows, torch.Tensor)
    return Call(
        TASK,
        mode,
        BODY,
        WEIGHTS,
        (rows,),
        needs_grad=(dense_rows,),
        cotangents=(torch.randn(4, 2, generator=torch.Generator().manual_seed(1)),) if mode is Mode.GRADIENT else (),
        targets=Targets("cross_entropy", torch.tensor([0, 1, 1, 0]), 4.0) if mode is Mode.LOSS else None,
        columns=(2,),
    )


def travelled(thing):
    """The object as it arrives: in read-only memory."""
    buffers = []
    content = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(content, buffers=[buffer.raw().tobytes() for buffer in buffers])


@pytest.mark.parametrize("rows", [torch.randn(4, 5), MATRIX], ids=["dense", "sparse"])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_call_that_has_travelled_gives_the_same_reply_to_the_last_bit(mode, rows):
    call = a_call(mode, rows)
    there = travelled(PackedCall.of(call)).call(BODY, unpacked_weights(travelled(packed_weights(WEIGHTS))))
    back = travelled(PackedReply.of(dense.run(there))).reply()
    expected = dense.run(call)
    assert back.loss == expected.loss
    assert back.weight_grads.keys() == expected.weight_grads.keys()
    pairs = [(back.weight_grads[name], grad) for name, grad in expected.weight_grads.items()]
    pairs += zip(back.outputs, expected.outputs, strict=True)
    pairs += zip(back.input_grads, expected.input_grads, strict=True)
    assert all(torch.equal(a, b) if b is not None else a is None for a, b in pairs)


def test_sparse_rows_leave_the_rest_of_their_matrix_behind():
    packed = PackedCall.of(a_call(Mode.FORWARD, MATRIX))
    assert packed.nbytes == 5 * 8 + 8 * 4 + 8 * 4
    assert packed.nbytes < len(pickle.dumps(packed)) < 1500


def test_arrived_arrays_are_writable():
    there = travelled(PackedCall.of(a_call(Mode.FORWARD, torch.ones(4, 5)))).call(BODY, WEIGHTS)
    there.inputs[0].add_(1)
    sparse = travelled(PackedCall.of(a_call(Mode.FORWARD, MATRIX))).call(BODY, WEIGHTS)
    sparse.inputs[0].values[:] = 0
    back = travelled(PackedReply.of(dense.run(there))).reply()
    back.outputs[0].add_(1)
    assert there.inputs[0].eq(2).all()


def test_weights_keep_requires_grad():
    there = unpacked_weights(travelled(packed_weights(WEIGHTS)))
    assert {name: weight.requires_grad for name, weight in there.items()} == {"lin.weight": True, "lin.bias": False}
