"""Inputs that once broke something, and similar ones: each is refused now."""

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from hostile.kinds import joined, small_program

LONG = 3000  # of a vector with as many scales, which became a matrix of 36 MB


def _npy(header: str) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + np.arange(6).tobytes()


def _names(damage: Callable[[Any, Any], None]) -> bytes:
    """An Arrow file of names, damaged where its offsets or indices lie."""
    import pyarrow as pa

    table = pa.table({"src": pa.array(["aaaa", "bb"]), "dst": pa.array(["bb", "cccc"])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    content = np.frombuffer(bytes(sink.getvalue()), np.uint8).copy()
    damage(content, pa)
    return content.tobytes()


def _replace(content: Any, old: bytes, new: bytes) -> None:
    at = content.tobytes().index(old)
    content[at : at + len(new)] = np.frombuffer(new, np.uint8)


def _falling_offsets(content: Any, pa: Any) -> None:
    _replace(content, struct.pack("<3i", 0, 4, 6), struct.pack("<3i", 0, 900, 6))


def _offsets_beyond_the_end(content: Any, pa: Any) -> None:
    _replace(content, struct.pack("<3i", 0, 4, 6), struct.pack("<3i", 0, 4, 2**30))


def _index_beyond_a_dictionary() -> bytes:
    import pyarrow as pa

    column = pa.array(["a", "b", "a"]).dictionary_encode()
    wrong = pa.DictionaryArray.from_arrays(pa.array([0, 77, 1], pa.int32()), column.dictionary, safe=False)
    table = pa.table({"src": column, "dst": wrong})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _program(old: bytes, new: bytes) -> bytes:
    content: bytes = small_program().content
    assert old in content
    return content.replace(old, new)


def _wide_sum() -> bytes:
    from onnx import TensorProto, helper

    from hostile.kinds import onnx_model

    nodes = [helper.make_node("Identity", ["weight.w"], ["weight_grad.w"])]
    inputs = {"rows.0": ["num_rows", 3], "weight.w": [3, 2]}
    model = onnx_model(nodes, inputs, {"weight_grad.w": [2**40, 2]}, helper, TensorProto)
    return bytes(model.SerializeToString())


def _request(columns: dict[str, int], rows: dict[str, np.ndarray]) -> bytes:
    from dorylus.functions.invocation import CONTENT, Invocation

    program = small_program()
    content = {CONTENT: np.frombuffer(program.content, np.uint8)}
    header = Invocation("t", program.hash, columns).to_header()
    return joined(header, {**rows, "weight.w": np.ones((3, 2), np.float32), **content})


def _scaled(name: str, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {name: np.ones(shape, np.int8), f"{name}.scale": np.ones(shape[:1], np.float32)}


def _sparse(name: str) -> dict[str, np.ndarray]:
    parts = np.zeros(3, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
    return {f"{name}.{part}": array for part, array in zip(("indptr", "indices", "values"), parts, strict=True)}


def _overflowing(name: str) -> dict[str, np.ndarray]:
    """Sparse rows whose offsets fall, though their differences, which overflow, are all from 0 on."""
    parts = np.array([0, 2**63 - 1, -(2**31), 1]), np.zeros(1, np.int32), np.ones(1, np.float32)
    return {f"{name}.{part}": array for part, array in zip(("indptr", "indices", "values"), parts, strict=True)}


def _frame(entries: list[Any], body: bytes = b"") -> bytes:
    from dorylus.wire.frames import HEAD

    text = json.dumps({"header": {}, "arrays": entries}).encode()
    total = HEAD.size + len(text) + len(body)
    return HEAD.pack(b"DRYL", 1, 0, len(text), len(entries), total) + text + body


CASES: dict[str, tuple[str, Callable[[], Any]]] = {
    "an answer of int8, a vector with as many scales": (
        "answers", lambda: (2, 0, joined({}, _scaled("output.0", (LONG,)))),
    ),
    "an answer of int8 in three dimensions": (
        "answers", lambda: (2, 0, joined({}, _scaled("output.0", (LONG, 1, 1)))),
    ),
    "an answer with outputs that were not requested": (
        "answers", lambda: (0, 0, joined({}, {"output.7": np.ones((LONG, 500), np.uint16)})),
    ),
    "a push of int8, a vector with as many scales": (
        "pushes",
        lambda: ("rows", {"ask": "take", "task": "task-1", "part": 0}, _scaled("input_grad.0", (LONG,)), "int8"),
    ),
    "a request of int8, a vector with as many scales": ("requests", lambda: _request({}, _scaled("rows.0", (LONG,)))),
    "a request for sparse rows of a billion columns": (
        "requests", lambda: _request({"rows.0": 10**9}, _sparse("rows.0")),
    ),
    "a request for sparse rows that the program does not take": (
        "requests", lambda: _request({"rows.5": 10**8}, {"rows.0": np.ones((2, 3), np.float32), **_sparse("rows.5")}),
    ),
    "a request for sparse rows whose offsets overflow": (
        "requests", lambda: _request({"rows.0": 3}, _overflowing("rows.0")),
    ),
    "a push that asks for something of great depth": (
        "pushes", lambda: ("weights", {"ask": [["x" * 50_000]], "task": "task-1"}, {}, "float32"),
    ),
    "a program whose input has a name that is no text": ("programs", lambda: _program(b"rows.0", b"rows\xff0")),
    "a program whose sum has a trillion entries": ("programs", _wide_sum),
    "a run.toml with a setting of endless depth": (
        "run.toml", lambda: b"[training]\nmode = " + b"[" * 300 + b"'x'" + b"]" * 300 + b"\n",
    ),
    "a run.toml with a setting of endless length": (
        "run.toml", lambda: b"[training]\nmode = '" + b"x" * 100_000 + b"'\n",
    ),
    "a frame with an empty array of a shape that overflows": ("frames", lambda: _frame([["a", "int8", [0, 2**62, 8]]])),
    "a frame with more bytes than it names": ("frames", lambda: _frame([["a", "int8", [3]]], bytes(500))),
    "an .npy whose header has an open bracket": (
        "npy edges", lambda: _npy("{'descr': '<i8', 'fortran_order': False, 'shape': (3, 2"),
    ),
    "an .npy of a shape with thousands of digits": (
        "npy edges",
        lambda: _npy("{'descr': '<i8', 'fortran_order': False, 'shape': (" + "9223372036854775807, " * 300 + ")}"),
    ),
    "an .npy of a negative shape": (
        "npy edges", lambda: _npy("{'descr': '<i8', 'fortran_order': False, 'shape': (-3, -2)}"),
    ),
    "names in an Arrow file whose offsets fall": ("arrow edges", lambda: _names(_falling_offsets)),
    "names in an Arrow file whose offsets lead out of it": ("arrow edges", lambda: _names(_offsets_beyond_the_end)),
    "names in an Arrow file whose indices lead out of the dictionary": ("arrow edges", _index_beyond_a_dictionary),
}  # fmt: skip
"""The kind of each, and how it is made."""
