"""Functions that run in this process: a linear body, its programs, and a handler that computes them with torch.

No socket, no process, no ONNX: tests that use this module check what happens around a program.
"""

import threading
from concurrent.futures import Future

import numpy as np
import torch
from torch import nn

from dorylus.functions.direct_path import Links
from dorylus.functions.handler import Handler
from dorylus.functions.program import ArrayRole, ExportedProgram, called, role, which
from dorylus.functions.runner import Loaded, Spec
from dorylus.pipeline import Kind, Task
from dorylus.pools.functions.tasks import Arrays
from dorylus.pools.pool import InvocationResponse
from dorylus.saga import dense
from dorylus.saga.dense import Call, Mode, Targets
from dorylus.saga.stages import Body
from dorylus.wire.frames import pack, unpack

IN, OUT, DEADLINE_S = 5, 3, 30.0
BODY = Body(nn.Linear(IN, OUT), "a linear body")
torch.manual_seed(3)
WEIGHTS = {name: torch.randn(p.shape).requires_grad_() for name, p in BODY.module.named_parameters()}
WEIGHT_NAMES = tuple(called(ArrayRole.WEIGHT, name) for name in WEIGHTS)
GRAD_NAMES = tuple(called(ArrayRole.WEIGHT_GRAD, name) for name in WEIGHTS)
PROGRAMS = {
    Mode.FORWARD: ExportedProgram.of(b"forward", ("rows.0", *WEIGHT_NAMES), ("output.0",)),
    Mode.GRADIENT: ExportedProgram.of(
        b"gradient", ("rows.0", "cotangent.0", *WEIGHT_NAMES), ("input_grad.0", *GRAD_NAMES)
    ),
    Mode.LOSS: ExportedProgram.of(
        b"loss", ("rows.0", "labels", "total", *WEIGHT_NAMES), ("input_grad.0", "loss", *GRAD_NAMES)
    ),
}
MODES = {program.hash: mode for mode, program in PROGRAMS.items()}


def a_task(interval=0):
    return Task(epoch=0, phase=0, interval=interval, step=0, kind=Kind.APPLY_VERTEX)


def a_call(mode=Mode.FORWARD, num_rows=10, seed=0, weights=WEIGHTS, inputs=None, **changes):
    random = torch.Generator().manual_seed(seed)
    inputs = inputs or (torch.randn(num_rows, IN, generator=random),)
    cotangents = (torch.randn(num_rows, OUT, generator=random),) if mode is Mode.GRADIENT else ()
    labels = torch.randint(OUT, (num_rows,), generator=random)
    targets = Targets("cross_entropy", labels, 7.0) if mode is Mode.LOSS else None
    columns = (OUT,) if mode is Mode.FORWARD else ()
    return Call(a_task(seed), mode, BODY, weights, inputs, (True,), cotangents, targets, columns, **changes)


def program_of(call):
    return PROGRAMS[call.mode]


class TorchRunner:
    """Stands in for ONNX Runtime: knows the three programs by their hashes."""

    def __init__(self):
        self._known = set()

    def known(self, program_hash):
        return program_hash in self._known

    def load(self, program_hash, content):
        assert ExportedProgram.of(content, (), ()).hash == program_hash
        self._known.add(program_hash)

    def loaded(self, program_hash):
        program = PROGRAMS[MODES[program_hash]]
        return Loaded(program_hash, _specs(program.inputs), _specs(program.outputs), lambda names, arrays: [])

    def run(self, program_hash, arrays):
        assert self.known(program_hash)
        assert arrays.keys() == set(PROGRAMS[MODES[program_hash]].inputs)
        given = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        weights = {which(n): given[n].requires_grad_() for n in given if role(n) is ArrayRole.WEIGHT}
        targets = Targets("cross_entropy", given["labels"], float(given["total"])) if "labels" in given else None
        cotangents = (given["cotangent.0"],) if "cotangent.0" in given else ()
        mode = MODES[program_hash]
        reply = dense.run(Call(a_task(), mode, BODY, weights, (given["rows.0"],), (True,), cotangents, targets, (OUT,)))
        return _arrays(reply, mode)


def _arrays(reply, mode) -> Arrays:
    made = {called(ArrayRole.OUTPUT, i): tensor.numpy() for i, tensor in enumerate(reply.outputs)}
    made |= {
        called(ArrayRole.INPUT_GRAD, i): grad.numpy() for i, grad in enumerate(reply.input_grads) if grad is not None
    }
    made |= {called(ArrayRole.WEIGHT_GRAD, name): grad.numpy() for name, grad in reply.weight_grads.items()}
    return made | ({"loss": np.float32(reply.loss).reshape(())} if mode is Mode.LOSS else {})


def _specs(names):
    shapes = {"rows.0": (None, IN), "cotangent.0": (None, OUT), "output.0": (None, OUT), "input_grad.0": (None, IN)}
    shapes |= {"labels": (None,), "total": (), "loss": ()}
    for name, weight in WEIGHTS.items():
        shapes[called(ArrayRole.WEIGHT, name)] = shapes[called(ArrayRole.WEIGHT_GRAD, name)] = tuple(weight.shape)
    return {name: Spec(np.dtype(np.int64 if name == "labels" else np.float32), shapes[name]) for name in names}


class InProcess:
    """An invoker whose functions run in the calling thread. ``on_request(frame)`` may act before each."""

    def __init__(self, links=None, payload_limit_bytes=None, on_request=lambda frame: None):
        self.payload_limit_bytes = payload_limit_bytes
        self.handler = Handler(TorchRunner(), links or Links())
        self.requests, self.sizes = [], []
        self.closed = False
        self._on_request = on_request

    def invoke(self, request, timeout_s):
        frame = unpack(request)
        self.requests.append(frame)
        self._on_request(frame)
        content = self.handler.handle(request)
        self.sizes += [len(request), len(content)]
        return InvocationResponse(content)

    def close(self):
        self.closed = True


class PortsInProcess:
    """Stands in for the two data ports: links that call the service, with frames made of bytes in between."""

    def __init__(self):
        self.service = None
        self.closed = False

    def open(self, config, service):
        self.service = service
        return self

    def dialled(self):
        from dorylus.functions.invocation import Ports

        return Ports("rows", "weights", {})

    def connect(self, address, keys):
        answer = self.service.answer_rows if address == "rows" else self.service.answer_weights
        return LinkInProcess(answer)

    def close(self):
        self.closed = True


class LinkInProcess:
    """A request is answered when its reply is received."""

    def __init__(self, answer):
        self._answer, self._requests = answer, []

    def send(self, header, arrays, timeout_s):
        self._requests.append(b"".join(pack(header, arrays)))
        return len(self._requests) - 1

    def receive(self, request, timeout_s):
        answered = self._answer(unpack(self._requests[request]))
        return unpack(b"".join(pack(answered.header, answered.arrays)))

    def close(self):
        pass


class Waiting:
    """The one answer to a call, waited for with a deadline; more than one is an error."""

    def __init__(self, pool, call):
        self._future, self.answers = Future(), 0
        self._lock = threading.Lock()
        pool.submit(call, self._take(self._future.set_result), self._take(self._future.set_exception))

    def _take(self, give):
        def take(answer):
            with self._lock:
                self.answers += 1
            give(answer)

        return take

    @property
    def answered(self):
        return self._future.done()

    def reply(self):
        return self._future.result(DEADLINE_S)

    def error(self):
        return self._future.exception(DEADLINE_S)


def assert_same(reply, expected, atol=1e-5):
    """Check that two replies hold the same tensors."""
    for name in ("outputs", "input_grads"):
        for got, want in zip(getattr(reply, name), getattr(expected, name), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=atol)
    assert reply.weight_grads.keys() == expected.weight_grads.keys()
    for name, grad in expected.weight_grads.items():
        torch.testing.assert_close(reply.weight_grads[name], grad, rtol=1e-4, atol=atol)
    assert abs(reply.loss - expected.loss) < 1e-4
