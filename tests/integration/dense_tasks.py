"""Real dense tasks by hand: exported, sent as a frame to a function of the test, and compared with torch."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import nn

from dorylus.functions.export import export
from dorylus.functions.invocation import CONTENT, Invocation
from dorylus.functions.program import ExportedProgram
from dorylus.pipeline import Kind, Task
from dorylus.pools.functions.tasks import Inputs, reply_of
from dorylus.saga import dense
from dorylus.saga.dense import Call, Mode, Reply, Targets
from dorylus.saga.stages import Body
from dorylus.wire.frames import pack, unpack

ROWS, WIDTH, CLASSES = 50, 12, 4
TASK = Task(epoch=0, phase=0, interval=0, step=0, kind=Kind.APPLY_VERTEX)


@cache
def fused_task() -> tuple[Call, ExportedProgram]:
    """A last layer with loss and gradients in one, as it ends every epoch; and its program."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, CLASSES))
        rows, labels = torch.randn(ROWS, WIDTH), torch.randint(CLASSES, (ROWS,))
    weights = {name: each.detach().clone().requires_grad_() for name, each in module.named_parameters()}
    targets = Targets("cross_entropy", labels, float(ROWS))
    call = Call(TASK, Mode.LOSS, Body(module), weights, (rows,), (True,), (), targets)
    return call, export(call)


def answered(ask: Callable[[bytes], bytes]) -> dict[str, object]:
    """Sends the task, with its program only after an answer that misses it; returns the header of the last answer."""
    call, program = fused_task()
    inputs = Inputs(call, program)
    arrays = {**inputs.whole, **inputs.weights, **inputs.part(0, ROWS)}
    header = Invocation("task-1", program.hash).to_header()
    frame = unpack(ask(b"".join(pack(header, arrays))))
    if "missing" in frame.header:
        content = np.frombuffer(program.content, np.uint8)
        frame = unpack(ask(b"".join(pack(header, {**arrays, CONTENT: content}))))
    assert "error" not in frame.header, frame.header["error"]
    assert_equal(reply_of(call, {name: array.copy() for name, array in frame.arrays.items()}), dense.run(call))
    return dict(frame.header)


def assert_equal(made: Reply, expected: Reply) -> None:
    """Two replies are the same but for rounding."""
    assert abs(made.loss - expected.loss) < 1e-5
    assert made.weight_grads.keys() == expected.weight_grads.keys()
    for name, grad in expected.weight_grads.items():
        torch.testing.assert_close(made.weight_grads[name], grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(made.input_grads[0], expected.input_grads[0], rtol=1e-4, atol=1e-6)
