"""The kinds of external input: their samples, how they are changed, and the code that reads them.

``samples()`` are valid and set what memory is legitimate; ``hostile(rng)`` makes a case; ``take`` hands one to the code
that reads such input. Files lie in a folder of the process's own.
"""

import copy
import io
import json
import random
import re
import shutil
import signal
import struct
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dorylus.wire.frames import DTYPES, HEAD, FrameLimits, pack, unpack
from hostile.mutate import changed_array, changed_arrays, changed_bytes, changed_tree, values

sys.path.append(str(Path(__file__).parent.parent / "unit" / "pools"))  # where linear_functions lies

NAMES = [
    "rows.0", "rows.1", "rows.0.scale", "rows.0.indptr", "rows.0.indices", "rows.0.values", "output.0", "output.1",
    "output.0.scale", "input_grad.0", "input_grad.0.scale", "weight_grad.weight", "weight_grad.bias", "weight.weight",
    "weight.bias", "weight.w", "loss", "labels", "total", "saved.0", "cotangent.0", "program.content", "rows", "x",
]  # fmt: skip


class MessageKind(Protocol):
    """A kind of input."""

    def samples(self) -> list[Any]: ...
    def hostile(self, rng: random.Random) -> Any: ...
    def take(self, given: Any) -> None: ...


# Frames


def some_frames() -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((7, 5)).astype(np.float32)
    return [
        ({}, {}),
        ({"task": "7.0.1", "program": "ab", "columns": {}, "precision": "float32"}, {"rows.0": rows}),
        (
            {"task": "x"},
            {"a": np.arange(4), "b": np.array(True), "c": np.zeros((0, 3)), "d": np.ones((2, 1, 2), np.int8)},
        ),
        ({"n": [1, 2.5, None, "é"]}, {f"weight.{i}": np.full((2, 2), i, np.float16) for i in range(6)}),
        (
            {"task": "x", "columns": {"rows.0": 9}},
            {"rows.0.indptr": np.array([0, 1, 3]), "rows.0.indices": np.array([1, 2, 0], np.int32)},
        ),
        ({"part": 1}, {"output.0": np.ones((7, 5), np.int8), "output.0.scale": np.ones(7, np.float32)}),
    ]


def joined(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    return b"".join(bytes(part) for part in pack(header, arrays))


def forged(rng: random.Random, text: bytes, num_arrays: int, body: bytes) -> bytes:
    """A frame around any JSON, whose head agrees with it."""
    head = HEAD.pack(b"DRYL", 1, 0, len(text), num_arrays, HEAD.size + len(text) + len(body))
    return head + text + body


def changed_frame(rng: random.Random, frame: bytes) -> bytes:
    """A frame with other JSON; its head and length agree with that where they can."""
    if rng.random() < 0.25:
        return changed_bytes(rng, frame)
    text_bytes, _ = struct.unpack_from("<II", frame, 8)
    tree = json.loads(frame[HEAD.size : HEAD.size + text_bytes])
    body = frame[HEAD.size + text_bytes :]
    if rng.random() < 0.5 and tree["arrays"]:
        tree["arrays"] = changed_tree(rng, tree["arrays"])
    else:
        tree = changed_tree(rng, tree)
    text = json.dumps(tree, ensure_ascii=rng.random() < 0.5, separators=(",", ":")).encode("utf-8", "surrogatepass")
    entries = tree.get("arrays") if isinstance(tree, dict) else None
    num_arrays = len(entries) if isinstance(entries, list) else 0
    if rng.random() < 0.7:
        body = bytes(min(_body_bytes(len(text), entries), 1 << 20))
        body = body if rng.random() < 0.5 else bytes(rng.randrange(256) if i < 64 else 1 for i in range(len(body)))
    return forged(rng, text, num_arrays, body)


def _body_bytes(text_bytes: int, entries: Any) -> int:
    """The lengths of the arrays that a frame names, as far as they are valid."""
    begin = end = HEAD.size + text_bytes
    for entry in entries if isinstance(entries, list) else []:
        try:
            size = DTYPES[entry[1]].itemsize
            for each in entry[2]:
                size *= each
        except Exception:
            return end - begin
        if not isinstance(size, int) or not 0 <= size <= 1 << 20:
            return end - begin
        end = -(-end // 64) * 64 + size
    return end - begin


class Frames:
    """Frames, as a receiver unpacks them."""

    def __init__(self, folder: Path) -> None:
        self._good = [joined(header, arrays) for header, arrays in some_frames()]

    def samples(self) -> list[bytes]:
        return self._good

    def hostile(self, rng: random.Random) -> bytes:
        return changed_frame(rng, rng.choice(self._good))

    def take(self, given: bytes) -> None:
        frame = unpack(given)
        assert sum(array.nbytes for array in frame.arrays.values()) <= len(given)
        for array in frame.arrays.values():
            array.sum(dtype=np.float64)


class Pieces:
    """Messages of a port: requests in pieces, from several connections, in any order."""

    def __init__(self, folder: Path) -> None:
        from dorylus.wire.pieces import MessageKind, Piece, messages

        self._cut: list[list[tuple[bytes, bytes]]] = []
        for number, (header, arrays) in enumerate(some_frames() * 2):
            parts = pack(header, arrays)
            size = sum(memoryview(part).nbytes for part in parts)
            first = Piece(MessageKind.REQUEST, 0, number % 2, number + 1, size)
            self._cut.append([(head, bytes(content)) for head, content in messages(first, parts)])
        content = self._cut[1][0][1]
        first = Piece(MessageKind.REQUEST, 0, 5, 1, len(content))
        cut = [content[i : i + 40] for i in range(0, len(content), 40)]
        self._cut.append(
            [(Piece(first.kind, i, 5, 1, first.total_bytes).to_bytes(), each) for i, each in enumerate(cut)]
        )

    def samples(self) -> list[Any]:
        return [[(b"one", *message) for message in messages] for messages in self._cut]

    def hostile(self, rng: random.Random) -> Any:
        sent = []
        for messages in rng.sample(self._cut, 3):
            connection = rng.choice([b"one", b"two"])
            sent += [(connection, head, content) for head, content in messages]
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(sent))
            connection, head, content = sent[at]
            pick = rng.randrange(5)
            if pick == 0:
                sent[at] = connection, changed_bytes(rng, head), content
            elif pick == 1:
                sent[at] = connection, head, changed_bytes(rng, content)
            elif pick == 2:
                sent.insert(rng.randrange(len(sent)), sent[at])
            elif pick == 3:
                del sent[at]
            else:
                fields = list(struct.unpack("<2sBBIQQQ", head)) if len(head) == 32 else None
                if fields:
                    place = rng.randrange(2, 7)
                    fields[place] = rng.choice([0, 1, 2, 3, 255, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1])
                    fields[2] %= 256
                    fields[3] %= 2**32
                    sent[at] = connection, struct.pack("<2sBBIQQQ", fields[0], 1, *fields[2:]), content
            if not sent:
                break
        return sent

    def take(self, given: Any) -> None:
        from dorylus.wire.port import FrameReceiver, Refusal

        class Everyone:
            def is_allowed(self, name: str) -> bool:
                return True

        receiver = FrameReceiver(Everyone(), FrameLimits(max_frame_bytes=1 << 22), clock=lambda: 0.0)  # type: ignore[arg-type]
        for connection, head, content in given:

            def receive(room: memoryview, content: bytes = content) -> int:
                room[: len(content)] = content[: len(room)]
                return len(content)

            try:
                whole = receiver.accept(connection, "a key", head, receive)
                if whole is not None:
                    unpack(whole[1])
            except (Refusal, Exception) as why:
                from dorylus.errors import DorylusError

                if not isinstance(why, Refusal | DorylusError):
                    raise
            assert receiver.pending_bytes <= 4 << 22


# Functions: their answers, their requests to ports, and the requests to them


class Answers:
    """Answers of functions on the inline path: frames around the outputs of a task."""

    def __init__(self, folder: Path) -> None:
        from linear_functions import PROGRAMS, a_call

        from dorylus.functions.payload import narrow
        from dorylus.functions.program import is_summed
        from dorylus.pools.functions.tasks import Inputs, TaskWork, even, output_shapes
        from dorylus.saga.dense import Mode

        self._works: list[tuple[Any, Callable[[], TaskWork], list[dict[str, np.ndarray]]]] = []
        for mode in Mode:
            for precision in ("float32", "bf16", "int8"):
                call, program = a_call(mode, num_rows=50), PROGRAMS[mode]
                inputs, parts = Inputs(call, program), even(50, 20)
                shapes = output_shapes(call, program.outputs, program.kept)

                work = partial(TaskWork, call, program, inputs, parts, precision, sums_apart=True)
                made = []
                for begin, end in parts:
                    rows = {name: () if is_summed(name) else (end - begin,) for name in shapes}
                    outputs = {name: np.ones((*rows[name], *shape), np.float32) for name, shape in shapes.items()}
                    made.append(narrow(outputs, precision))
                self._works.append((call, work, made))

    def samples(self) -> list[Any]:
        header = {"task": "t", "timings": {"total_ms": 5.0, "init_ms": 1.0}, "cold": True}
        return [
            (which, part, joined(header, arrays))
            for which, (_, _, made) in enumerate(self._works)
            for part, arrays in enumerate(made)
        ]

    def hostile(self, rng: random.Random) -> Any:
        which = rng.randrange(len(self._works))
        made = self._works[which][2]
        part = rng.randrange(len(made))
        arrays = made[part]
        header: Any = {"task": "t", "timings": {"total_ms": 5.0, "init_ms": 1.0}, "cold": True}
        if rng.random() < 0.3:
            header = changed_tree(rng, {**header, "error": "no", "kind": "wire", "missing": "x"})
        if rng.random() < 0.85:
            arrays = changed_arrays(rng, arrays, NAMES)
        try:
            frame = joined(header if isinstance(header, dict) else {}, arrays)
        except Exception:
            frame = b""
        return which, part, changed_frame(rng, frame) if frame and rng.random() < 0.15 else frame

    def take(self, given: Any) -> None:
        from dorylus.functions.program import ProgramError
        from dorylus.pools.functions.invocations import Invocations, UsageCounter
        from dorylus.pools.functions.tasks import reply_of
        from dorylus.pools.pool import InvocationResponse, Lost

        which, part, content = given
        call, work, made = self._works[which]

        class Canned:
            payload_limit_bytes = None

            def invoke(self, request: bytes, timeout_s: float) -> InvocationResponse:
                return InvocationResponse(content)

            def close(self) -> None: ...

        bills = []
        invocations = Invocations(Canned(), UsageCounter(), 1.0, bills.append)
        try:
            frame = invocations.run(call, {}, {})
        finally:
            assert all(0 <= bill.billed_ms < 1e10 for bill in bills)
        outcome = work().outcome
        try:
            outcome.take(part, frame.arrays)
        except ProgramError as error:
            raise Lost(str(error)) from error
        for other, arrays in enumerate(made):
            if other != part:
                outcome.take(other, arrays)
        if outcome.complete:
            reply_of(call, outcome.arrays(), None)


class Pushes:
    """Requests and pushes of functions to the data ports on the direct path."""

    def __init__(self, folder: Path) -> None:
        from linear_functions import PROGRAMS, WEIGHTS, a_call

        from dorylus.saga.dense import Mode

        self._mode = Mode.GRADIENT
        self._call, self._program = a_call(self._mode, num_rows=10), PROGRAMS[self._mode]
        self._weights = WEIGHTS
        grads = {"input_grad.0": np.ones((4, 5), np.float32)}
        scaled = {"input_grad.0": np.ones((4, 5), np.int8), "input_grad.0.scale": np.ones(4, np.float32)}
        sums = {f"weight_grad.{name}": np.ones(tuple(weight.shape), np.float32) for name, weight in WEIGHTS.items()}
        names = [f"weight.{name}" for name in WEIGHTS]
        requests: list[tuple[str, dict[str, Any], dict[str, np.ndarray]]] = [
            ("rows", {"ask": "hello"}, {}),
            ("rows", {"ask": "rows", "task": "task-1", "part": 1}, {}),
            ("rows", {"ask": "take", "task": "task-1", "part": 1}, grads),
            ("rows", {"ask": "take", "task": "task-1", "part": 0}, scaled),
            ("weights", {"ask": "take", "task": "task-1"}, sums),
            ("weights", {"ask": "program", "task": "task-1", "program": self._program.hash}, {}),
            ("weights", {"ask": "weights", "task": "task-1", "version": "run-0", "names": names}, {}),
        ]
        self._requests = requests

    def samples(self) -> list[Any]:
        return [(*request, "int8" if "input_grad.0.scale" in request[2] else "float32") for request in self._requests]

    def hostile(self, rng: random.Random) -> Any:
        port, header, arrays = rng.choice(self._requests)
        if rng.random() < 0.5:
            header = changed_tree(rng, header)
        if rng.random() < 0.7:
            arrays = changed_arrays(rng, arrays, NAMES)
        port = port if rng.random() < 0.9 else rng.choice(["rows", "weights"])
        return port, header if isinstance(header, dict) else {}, arrays, rng.choice(["float32", "bf16", "int8"])

    def take(self, given: Any) -> None:
        from dorylus.pools.functions.data_service import DataService, WeightVersions
        from dorylus.pools.functions.invocations import UsageCounter
        from dorylus.pools.functions.tasks import Inputs, OpenTask, TaskWork, even
        from dorylus.wire.frames import Frame

        port, header, arrays, precision = given
        versions = WeightVersions("run")
        service = DataService(versions, UsageCounter(), precision, lambda task: None)
        task = OpenTask("task-1", self._call)
        inputs = Inputs(self._call, self._program)
        task.work = TaskWork(self._call, self._program, inputs, even(10, 4), precision, sums_apart=False)
        versions.use(self._weights)
        service.open(task, self._program)
        answer = service.answer_rows if port == "rows" else service.answer_weights
        made = answer(Frame(header, arrays))
        pack(made.header, made.arrays)


class Requests:
    """Requests to a function: the handler answers each with a frame."""

    def __init__(self, folder: Path) -> None:
        from dorylus.functions.handler import Handler
        from dorylus.functions.invocation import CONTENT, Invocation

        self._handler = Handler()
        program = small_program()
        rows, weight = np.ones((9, 3), np.float32), np.ones((3, 2), np.float32)
        content = {CONTENT: np.frombuffer(program.content, np.uint8)}
        sparse = {
            "rows.0.indptr": np.array([0, 1, 1, 3]),
            "rows.0.indices": np.array([2, 0, 1], np.int32),
            "rows.0.values": np.array([5, 1, 2], np.float32),
        }
        scaled = {"rows.0": np.ones((9, 3), np.int8), "rows.0.scale": np.ones(9, np.float32)}
        header = Invocation("t", program.hash).to_header()
        whole = {"weight.w": weight}
        self._good: list[tuple[dict[str, Any], dict[str, np.ndarray]]] = [
            (header, {"rows.0": rows, **whole, **content}),
            (header, {"rows.0": rows, **whole}),
            ({**header, "columns": {"rows.0": 3}}, {**sparse, **whole}),
            ({**header, "precision": "int8"}, {**scaled, **whole}),
            ({**header, "precision": "bf16"}, {"rows.0": np.ones((9, 3), np.uint16), **whole}),
        ]

    def samples(self) -> list[bytes]:
        return [joined(header, arrays) for header, arrays in self._good]

    def hostile(self, rng: random.Random) -> bytes:
        header, arrays = rng.choice(self._good)
        if rng.random() < 0.5:
            changed = changed_tree(rng, header)
            header = changed if isinstance(changed, dict) else {}
        if rng.random() < 0.8:
            arrays = changed_arrays(rng, arrays, NAMES)
        if not {"ports", "probe"}.isdisjoint(header):
            header = {}
        try:
            frame = joined(header, arrays)
        except Exception:
            return b""
        return changed_frame(rng, frame) if rng.random() < 0.1 else frame

    def take(self, given: bytes) -> None:
        from dorylus.functions.program import ProgramError

        answer = unpack(self._handler.handle(given))
        if "error" in answer.header:
            text = answer.header["error"]
            assert answer.header["kind"] in ("task", "frame", "wire", "refused"), text
            # Only errors of bodies are reported with their type, and no body runs here.
            assert not re.match(r"[A-Z]\w*(Error|Exception|Fault)\b", text), text
            raise ProgramError(text)


# Programs


def small_program() -> Any:
    from onnx import TensorProto, helper

    from dorylus.functions.program import ExportedProgram

    nodes = [helper.make_node("MatMul", ["rows.0", "weight.w"], ["output.0"])]
    inputs = {"rows.0": ["num_rows", 3], "weight.w": [3, 2]}
    model = onnx_model(nodes, inputs, {"output.0": ["num_rows", 2]}, helper, TensorProto)
    return ExportedProgram.of(model.SerializeToString(), tuple(inputs), ("output.0",))


def onnx_model(nodes: Any, inputs: Any, outputs: Any, helper: Any, proto: Any, constants: Any = ()) -> Any:
    def described(named: Mapping[str, Any]) -> list[Any]:
        return [helper.make_tensor_value_info(name, proto.FLOAT, shape) for name, shape in named.items()]

    graph = helper.make_graph(nodes, "small", described(inputs), described(outputs), initializer=list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


class Invocations:
    """Headers of invocations, the keys and ports in them included."""

    def __init__(self, folder: Path) -> None:
        from dorylus.functions.invocation import DirectTask, Invocation, Ports
        from dorylus.wire.keys import ClientKeys

        keys = ClientKeys("a" * 40, "b" * 40, "c" * 40, 1e9).to_header()
        ports = Ports("tcp://127.0.0.1:1", "tcp://127.0.0.1:2", keys)
        direct_task = DirectTask(ports, 100, 40, "v", True, 5.0)
        self._headers = [
            Invocation("t", "h", {"rows.0": 7}, "bf16", direct_task).to_header(),
            Invocation("t", "h").to_header(),
        ]

    def samples(self) -> list[Any]:
        return self._headers

    def hostile(self, rng: random.Random) -> Any:
        header = changed_tree(rng, rng.choice(self._headers))
        return header if isinstance(header, dict) else {}

    def take(self, given: Any) -> None:
        from dorylus.functions.invocation import Invocation
        from dorylus.wire.keys import ClientKeys

        invocation = Invocation.from_header(given)
        if invocation.direct is not None:
            assert 0 <= invocation.direct.num_parts <= 1 << 20
            keys = ClientKeys.from_header(invocation.direct.ports.keys)
            moved = "b" * 40 in repr({name: each for name, each in given.items() if name != "keys"})
            assert moved or "b" * 40 not in repr(keys) + repr(invocation)


class Programs:
    """ONNX programs, as the runner of a function loads and runs them."""

    def __init__(self, folder: Path) -> None:
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        from dorylus.functions.runner import Runner

        self._onnx, self._runner = onnx, Runner(max_programs=4)
        make = helper.make_node
        wide = {"rows.0": ["num_rows", 3], "weight.w": [3, 2]}
        grads = {"rows.0": ["num_rows", 3], "cotangent.0": ["num_rows", 2], "weight.w": [3, 2]}
        axes = numpy_helper.from_array(np.array([0], np.int64), "axes")
        bias = numpy_helper.from_array(np.ones(2, np.float32), "bias")
        self._good = [
            onnx_model(
                [make("MatMul", ["rows.0", "weight.w"], ["output.0"])],
                wide, {"output.0": ["num_rows", 2]}, helper, TensorProto,
            ),
            onnx_model(
                [
                    make("MatMul", ["rows.0", "weight.w"], ["h"]),
                    make("Add", ["h", "bias"], ["hb"]),
                    make("Relu", ["hb"], ["output.0"]),
                ],
                wide, {"output.0": ["num_rows", 2]}, helper, TensorProto, [bias],
            ),
            onnx_model(
                [
                    make("Transpose", ["weight.w"], ["wt"], perm=[1, 0]),
                    make("Transpose", ["rows.0"], ["xt"], perm=[1, 0]),
                    make("MatMul", ["cotangent.0", "wt"], ["input_grad.0"]),
                    make("MatMul", ["xt", "cotangent.0"], ["weight_grad.w"]),
                ],
                grads, {"input_grad.0": ["num_rows", 3], "weight_grad.w": [3, 2]}, helper, TensorProto,
            ),
            onnx_model(
                [
                    make("Mul", ["rows.0", "rows.0"], ["squares"]),
                    make("ReduceSum", ["squares", "axes"], ["sums"], keepdims=0),
                    make("ReduceSum", ["sums", "axes"], ["loss"], keepdims=0),
                ],
                {"rows.0": ["num_rows", 3]}, {"loss": []}, helper, TensorProto, [axes],
            ),
        ]  # fmt: skip

    def samples(self) -> list[bytes]:
        return [model.SerializeToString() for model in self._good]

    def hostile(self, rng: random.Random) -> bytes:
        model = self._onnx.ModelProto()
        model.CopyFrom(rng.choice(self._good))
        if rng.random() < 0.2:
            return changed_bytes(rng, model.SerializeToString())
        for _ in range(rng.choice([1, 1, 2, 3])):
            self._change(rng, model)
        return bytes(model.SerializeToString())

    def _change(self, rng: random.Random, model: Any) -> None:
        graph = model.graph
        value = rng.choice([*graph.input, *graph.output]) if graph.input or graph.output else None
        node = rng.choice(graph.node) if graph.node else None
        pick = rng.randrange(11)
        names = [array.name for array in (*graph.input, *graph.output)] + ["h", "wt", "", "axes"]
        if pick < 3 and value is not None and value.type.tensor_type.shape.dim:
            dim = rng.choice(value.type.tensor_type.shape.dim)
            if rng.random() < 0.3:
                dim.dim_param = rng.choice(["num_rows", "n", ""])
            else:
                dim.dim_value = rng.choice([0, 1, -1, 2, 7, 2**31, 2**40, 2**63 - 1])
        elif pick == 3 and value is not None:
            value.type.tensor_type.elem_type = rng.choice([0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 14, 16, 20, 99])
        elif pick == 4 and value is not None:
            value.name = rng.choice([*names, "rows.1", "x", "labels"])
        elif pick == 5 and node is not None:
            node.op_type = rng.choice(
                ["Add", "Mul", "Relu", "Transpose", "Identity", "Softmax", "Reshape", "Gather", "Expand", "Tile",
                 "ConstantOfShape", "Range", "Concat", "Loop", "If", "Nope", "Pad", "Resize", "NonZero", "EyeLike"]
            )  # fmt: skip
        elif pick == 6 and node is not None:
            which = node.input if rng.random() < 0.6 or not node.output else node.output
            if which:
                which[rng.randrange(len(which))] = rng.choice(names)
        elif pick == 7 and node is not None and node.attribute:
            attribute = rng.choice(node.attribute)
            if attribute.ints:
                attribute.ints[0] = rng.choice([-1, 5, 2**31, 2**62])
            attribute.type = rng.choice([attribute.type, 1, 2, 3, 7])
            attribute.i = rng.choice([0, 1, -1, 2**40])
        elif pick == 8 and node is not None:
            graph.node.remove(node) if rng.random() < 0.5 else graph.node.append(node)
        elif pick == 9 and graph.initializer:
            tensor = rng.choice(graph.initializer)
            if rng.random() < 0.5 and tensor.dims:
                tensor.dims[0] = rng.choice([0, 1, 3, 2**31, 2**62, -1])
            else:
                tensor.raw_data = changed_bytes(rng, tensor.raw_data)
        else:
            model.ir_version = rng.choice([0, 3, 10, 99, 2**40])
            if model.opset_import:
                model.opset_import[0].version = rng.choice([1, 7, 13, 18, 21, 999, -1])

    def take(self, given: bytes) -> None:
        from dorylus.functions.program import content_hash

        program_hash = content_hash(given)
        self._runner.load(program_hash, given)
        loaded = self._runner.loaded(program_hash)
        if sum(_size(spec.shape) for spec in loaded.inputs.values()) > 1 << 20:
            return  # a sender of such a program has to send such arrays, too
        self._runner.run(program_hash, {name: spec.zeros(4) for name, spec in loaded.inputs.items()})


def _size(shape: tuple[int | None, ...]) -> int:
    size = 1
    for each in shape:
        size *= 4 if each is None else max(each, 1)
    return size


class CachedPrograms:
    """Files of the cache of programs, whose checksum agrees with what they say."""

    def __init__(self, folder: Path) -> None:
        from dorylus.functions.program_cache import ProgramCache

        self._cache, self._folder = ProgramCache(folder / "programs"), folder / "programs"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._about = {"key": "k", "inputs": ["rows.0", "weight.w"], "outputs": ["output.0"], "kept": {"saved.0": 3}}

    def _file(self, about: Any) -> bytes:
        import hashlib

        rest = json.dumps(about).encode() + b"\ncontent"
        return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest

    def samples(self) -> list[bytes]:
        return [self._file(self._about)]

    def hostile(self, rng: random.Random) -> bytes:
        file = self._file(changed_tree(rng, self._about))
        return changed_bytes(rng, file) if rng.random() < 0.2 else file

    def take(self, given: bytes) -> None:
        (self._folder / "k.program").write_bytes(given)
        found = self._cache.get("k")
        assert found is None or all(isinstance(name, str) for name in (*found.inputs, *found.outputs))


# Run folders


class RunFolders:
    """run.toml, as train and resume read it: settings checked, the model's recipe built."""

    def __init__(self, folder: Path) -> None:
        import tomli_w

        from dorylus.config import RunConfig
        from dorylus.runs.run_folder import RunFolder, RunSpec

        self._dumps, self._path = tomli_w.dumps, folder / "run"
        spec = RunSpec({"source": "communities"}, {"name": "gcn", "hidden": [16, 8], "dropout": 0.5})
        settings = {"epochs": 3, "optimizer_options": {"eps": 1e-8}, "weight_decay": {"*.bias": 0.0}, "servers": 2}
        shutil.rmtree(self._path, ignore_errors=True)
        RunFolder.create(self._path, spec, RunConfig.of(**settings))
        import tomllib

        self._content = tomllib.loads((self._path / "run.toml").read_text())

    def samples(self) -> list[bytes]:
        return [self._dumps(self._content).encode()]

    def hostile(self, rng: random.Random) -> bytes:
        tree = copy.deepcopy(self._content)
        for _ in range(rng.choice([1, 1, 2])):
            section = rng.choice(["graph", "model", "training", "training", None])
            if section is None:
                changed = changed_tree(rng, tree)
                tree = changed if isinstance(changed, dict) else tree
            elif isinstance(tree.get(section), dict):
                tree[section] = changed_tree(rng, tree[section])
        try:
            text = self._dumps(_without_none(tree)).encode("utf-8", "surrogatepass")
        except Exception:
            text = self._dumps(self._content).encode()
        return changed_bytes(rng, text) if rng.random() < 0.15 else text

    def take(self, given: bytes) -> None:
        from dorylus.runs.run_folder import RunFolder

        (self._path / "run.toml").write_bytes(given)
        run = RunFolder.open(self._path)
        if run.spec.model:
            run.spec.build_model()


def _without_none(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {str(key): _without_none(value) for key, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [_without_none(value) for value in tree if value is not None]
    return tree


class Checkpoints:
    """Checkpoints whose checksums agree with what they say: state.json and the two files of tensors."""

    def __init__(self, folder: Path) -> None:
        import torch

        from dorylus.runs import checkpoint

        self._checkpoint, folder = checkpoint, folder / "checkpoints"
        shutil.rmtree(folder, ignore_errors=True)
        weights = {"layers.0.weight": torch.ones(5, 3), "layers.0.bias": torch.zeros(3)}
        optimizer = {
            "state": {name: {"step": torch.tensor(3.0), "exp_avg": torch.zeros_like(w)} for name, w in weights.items()},
            "groups": {name: {"lr": 0.01, "betas": (0.9, 0.999)} for name in weights},
        }
        state = checkpoint.Checkpoint(
            epoch=3, weights=weights, optimizer=optimizer, progress={"losses": [1.0, float("inf")], "best": None}
        )
        self._path, self._expect = checkpoint.save(folder, state), state.fingerprint
        self._files = {name: (self._path / name).read_bytes() for name in (checkpoint.WEIGHTS, checkpoint.OPTIMIZER)}
        self._content = json.loads((self._path / checkpoint.STATE).read_bytes())["content"]

    def samples(self) -> list[Any]:
        return [(self._content, self._files)]

    def hostile(self, rng: random.Random) -> Any:
        content, files = copy.deepcopy(self._content), dict(self._files)
        if rng.random() < 0.7:
            changed = changed_tree(rng, content)
            content = changed if isinstance(changed, dict) else content
        if rng.random() < 0.5:
            name = rng.choice(list(files))
            files[name] = _changed_safetensors(rng, files[name])
        return content, files

    def take(self, given: Any) -> None:
        content, files = given
        content = dict(content)
        if isinstance(content.get("checksums"), dict):
            content["checksums"] = {name: self._checkpoint._checksum(data) for name, data in files.items()}
        for name, data in files.items():
            (self._path / name).write_bytes(data)
        try:
            state = self._checkpoint._state_file(content)
        except ValueError:
            return  # a number that JSON cannot express
        (self._path / self._checkpoint.STATE).write_bytes(state)
        loaded = self._checkpoint.load(self._path, self._expect)
        assert loaded.fingerprint == self._expect


def _changed_safetensors(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.2:
        return changed_bytes(rng, data)
    (length,) = struct.unpack_from("<Q", data)
    tree = changed_tree(rng, json.loads(data[8 : 8 + length]))
    text = json.dumps(tree).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


class Logs:
    """Run logs, as every reader of a run reads them."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "log.jsonl"
        self._records = [
            {"event": "run", "version": 1, "time": 1.5, "config": {"epochs": 3}},
            {"event": "epoch", "epoch": 0, "loss": 1.5, "seconds": 0.1, "time": 2.5},
        ]

    def samples(self) -> list[bytes]:
        return [self._text(self._records)]

    def _text(self, records: list[Any]) -> bytes:
        return b"".join(json.dumps(record).encode() + b"\n" for record in records)

    def hostile(self, rng: random.Random) -> bytes:
        records = [changed_tree(rng, record) if rng.random() < 0.6 else record for record in self._records]
        text = self._text(records)
        return changed_bytes(rng, text) if rng.random() < 0.3 else text

    def take(self, given: bytes) -> None:
        from dorylus.runs.run_log import read_log

        self._path.write_bytes(given)
        list(read_log(self._path))


# Graphs


class Stores:
    """Manifests of stores, and arrays that are shorter or longer than they say."""

    def __init__(self, folder: Path) -> None:
        from dorylus.graph.graph import Graph

        self._path = folder / "store"
        shutil.rmtree(self._path, ignore_errors=True)
        edges = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [0, 4]]).T
        masks = {name: np.arange(5) % 3 == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
        graph = Graph.from_edges(
            edges[0], edges[1], num_vertices=5, features=np.ones((5, 3), np.float32), labels=np.arange(5) % 2, **masks
        )
        graph.save(self._path)
        (manifest,) = self._path.glob("*.json")
        self._manifest, self._content = manifest, json.loads(manifest.read_bytes())
        self._arrays = {path: path.read_bytes() for path in self._path.iterdir() if path != manifest}

    def samples(self) -> list[Any]:
        return [(json.dumps(self._content).encode(), {})]

    def hostile(self, rng: random.Random) -> Any:
        tree, arrays = self._content, {}
        if rng.random() < 0.85:
            tree = changed_tree(rng, tree)
        if rng.random() < 0.3:
            path = rng.choice(list(self._arrays))
            data = np.frombuffer(self._arrays[path], np.uint8)
            arrays[path] = changed_bytes(rng, data.tobytes())
        text = json.dumps(tree).encode("utf-8", "surrogatepass")
        return changed_bytes(rng, text) if rng.random() < 0.1 else text, arrays

    def take(self, given: Any) -> None:
        from dorylus.graph.graph import Graph

        manifest, arrays = given
        self._manifest.write_bytes(manifest)
        for path, data in arrays.items():
            path.write_bytes(data)
        try:
            graph = Graph.open(self._path)
            graph.in_degrees()
            graph = Graph.open(self._path, verify=True)
            np.asarray(graph.labels).sum()
        finally:
            for path in arrays:
                path.write_bytes(self._arrays[path])


class _Edges:
    """Files of edges, ingested into a store."""

    name = "edges"
    space_bytes = 1 << 30  # an ingest reserves what it may use, and touches what it needs
    options: Mapping[str, Any] = {}

    def __init__(self, folder: Path) -> None:
        self._file, self._store = folder / f"{self.name}{self.suffix}", folder / "ingested"
        self._good = self.files()

    suffix = ".txt"

    def files(self) -> list[bytes]:
        raise NotImplementedError

    def samples(self) -> list[bytes]:
        return self._good

    def hostile(self, rng: random.Random) -> bytes:
        return changed_bytes(rng, rng.choice(self._good))

    def take(self, given: bytes) -> None:
        from dorylus.ingest.entry_point import ingest_edges

        self._file.write_bytes(given)
        shutil.rmtree(self._store, ignore_errors=True)
        try:
            ingest_edges(self._file, self._store, memory="1GiB", **self.options)
        except BaseException:
            assert not self._store.exists()
            raise


class TextEdges(_Edges):
    """Edge lists as text: separators, headings, comments, weights, names."""

    name = "text"

    def files(self) -> list[bytes]:
        return [
            b"0 1\n1 2\n2 0\n",
            b"# a comment\n0\t1\t0.5\n1\t2\t1.5\n",
            b"source,destination\na,b\nb,c\n",
            b'src,dst,weight\n"d ""e""",b,1\nb,c,2\n',
            b"0 1\r\n1 2\r\n",
        ]

    def hostile(self, rng: random.Random) -> bytes:
        data = rng.choice(self._good)
        if rng.random() < 0.5:
            return changed_bytes(rng, data)
        lines = data.split(b"\n")
        for _ in range(rng.choice([1, 1, 2, 3])):
            at = rng.randrange(len(lines))
            words = lines[at].replace(b",", b" , ").split(b" ")
            word = str(values(rng)).encode("utf-8", "surrogatepass")[:200]
            words[rng.randrange(len(words))] = rng.choice(
                [
                    word,
                    b"",
                    b"-1",
                    b"99999999999999999999",
                    b"4294967296",
                    b"9223372036854775807",
                    b"1e3",
                    b"nan",
                    b"inf",
                ]
            )
            lines[at] = b" ".join(words).replace(b" , ", b",")
        return b"\n".join(lines)


class NpyEdges(_Edges):
    """Edge lists as .npy: the header says another dtype, order or shape."""

    name, suffix = "npy", ".npy"

    def files(self) -> list[bytes]:
        few = [_npy(np.array([[0, 1], [1, 2], [2, 0]], dtype)) for dtype in (np.int64, np.int32, np.uint32)]
        return [*few, _npy(np.array([[0, 3_000_000]]))]  # few edges may be of a store of many vertices

    def hostile(self, rng: random.Random) -> bytes:
        if rng.random() < 0.3:
            return changed_bytes(rng, rng.choice(self._good))
        if rng.random() < 0.3:
            return _npy(changed_array(rng, np.array([[0, 1], [1, 2], [2, 0]])))
        header = {"descr": "<i8", "fortran_order": False, "shape": [3, 2]}
        header = changed_tree(rng, header)
        if isinstance(header, dict) and isinstance(header.get("shape"), list):
            header["shape"] = tuple(header["shape"])
        text = repr(header).encode("utf-8", "replace")
        text += b" " * (-(len(text) + 11) % 64) + b"\n"
        version = rng.choice([b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"])
        length = struct.pack("<H", len(text) % 65536) if version == b"\x01\x00" else struct.pack("<I", len(text))
        return b"\x93NUMPY" + version + length + text + np.arange(6).tobytes()


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


class ArrowEdges(_Edges):
    """Edge lists as Arrow files: other types, nulls, dictionaries, and damaged metadata."""

    name, suffix = "arrow", ".arrow"

    def tables(self) -> list[Any]:
        import pyarrow as pa

        return [
            pa.table({"source": pa.array([0, 1, 2]), "destination": pa.array([1, 2, 0])}),
            pa.table({"src": pa.array(["a", "b"]), "dst": pa.array(["b", "c"]), "weight": pa.array([1.0, 2.0])}),
        ]

    def files(self) -> list[bytes]:
        return [self.written(table) for table in self.tables()]

    def written(self, table: Any) -> bytes:
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    def hostile(self, rng: random.Random) -> bytes:
        import pyarrow as pa

        if rng.random() < 0.5:
            return changed_bytes(rng, rng.choice(self._good))
        contents: list[list[Any]] = [
            [0, 1, None], [-1, 0, 1], [2**40, 0, 1], [2**63 - 1, 0, 0], ["a", "b", None], ["", "b", "c"], [1, 2, 3],
            [float("nan"), 1.0, 2.0], [b"\xff", b"b", b"c"], [True, False, True], [[0], [1], [2]], [{"a": 1}] * 3, [],
            ["x" * 10_000, "y", "z"], [0.5, 1.0, 2.0], [None] * 3,
        ]  # fmt: skip
        names = rng.choice([["source", "destination"], ["src", "dst", "weight"], ["a"], ["a", "b", "c", "d"], []])
        columns = {name: rng.choice(contents) for name in names}
        shortest = min((len(column) for column in columns.values()), default=0)
        arrays = {name: pa.array(column[:shortest]) for name, column in columns.items()}
        try:
            if rng.random() < 0.3:
                arrays = {name: array.dictionary_encode() for name, array in arrays.items()}
            return self.written(pa.table(arrays))
        except Exception:
            return self._good[0]


class ParquetEdges(ArrowEdges):
    """Edge lists as Parquet."""

    name, suffix = "parquet", ".parquet"

    def written(self, table: Any) -> bytes:
        import pyarrow as pa
        from pyarrow import parquet

        sink = pa.BufferOutputStream()
        parquet.write_table(table, sink)
        return bytes(sink.getvalue())


KINDS: dict[str, Callable[[Path], MessageKind]] = {
    "frames": Frames,
    "pieces": Pieces,
    "answers": Answers,
    "pushes": Pushes,
    "requests": Requests,
    "invocations": Invocations,
    "programs": Programs,
    "cached programs": CachedPrograms,
    "run.toml": RunFolders,
    "run logs": Logs,
    "checkpoints": Checkpoints,
    "stores": Stores,
    "text edges": TextEdges,
    "npy edges": NpyEdges,
    "arrow edges": ArrowEdges,
    "parquet edges": ParquetEdges,
}
"""All kinds by name."""


# Kinds that break the rules, to test the detection


class _Breaks:
    """Takes its samples, and breaks a rule with every case."""

    def __init__(self, folder: Path) -> None: ...

    def samples(self) -> list[Any]:
        return [None]

    def hostile(self, rng: random.Random) -> Any:
        return "hostile"

    def take(self, given: Any) -> None:
        if given is not None:
            self.wrong()

    def wrong(self) -> None:
        raise KeyError("an error that is none of ours")


class _Grows(_Breaks):
    def wrong(self) -> None:
        np.ones(64 << 20, np.uint8).sum()


class _Dies(_Breaks):
    def wrong(self) -> None:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        signal.raise_signal(signal.SIGSEGV)


class _Hangs(_Breaks):
    def wrong(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        time.sleep(1000)


BREAKERS: dict[str, Callable[[Path], MessageKind]] = {
    "raises": _Breaks,
    "grows": _Grows,
    "dies": _Dies,
    "hangs": _Hangs,
}
