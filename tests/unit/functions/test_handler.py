"""The handler on the inline path: one frame in, one frame out."""

import tracemalloc

import numpy as np
import pytest
import small_programs as small
from small_programs import numbers

from dorylus.functions.handler import Handler, handle
from dorylus.functions.invocation import CONTENT, Invocation
from dorylus.functions.payload import to_bf16
from dorylus.wire.frames import FrameLimits, pack, unpack


def invoke(handler, invocation, arrays):
    header = invocation if isinstance(invocation, dict) else invocation.to_header()
    return unpack(handler.handle(b"".join(pack(header, arrays))))


def content_of(program):
    return {CONTENT: np.frombuffer(program.content, np.uint8)}


def arrays_of_forward(num_rows=4):
    return {"rows.0": numbers(1, num_rows, 3), "weight.w": numbers(2, 3, 2)}


def test_an_unknown_program_is_reported_as_missing():
    program = small.forward()
    answer = invoke(Handler(), Invocation("t1", program.hash), arrays_of_forward())
    assert answer.header["missing"] == program.hash
    assert answer.arrays == {}


def test_a_program_sent_along_is_run_and_kept():
    program, handler, arrays = small.forward(), Handler(), arrays_of_forward()
    first = invoke(handler, Invocation("t1", program.hash), {**arrays, **content_of(program)})
    again = invoke(handler, Invocation("t2", program.hash), arrays)
    for answer in (first, again):
        np.testing.assert_allclose(answer.arrays["output.0"], arrays["rows.0"] @ arrays["weight.w"], rtol=1e-5)
    assert (first.header["task"], again.header["task"]) == ("t1", "t2")


def test_the_first_invocation_of_a_process_is_cold_and_the_next_is_not():
    program, handler = small.forward(), Handler()
    answers = [invoke(handler, Invocation("t", program.hash), arrays_of_forward()) for _ in range(2)]
    assert [answer.header["cold"] for answer in answers] == [True, False]


def test_an_answer_holds_its_timings():
    program = small.forward()
    ticks = iter(range(100))
    handler = Handler(clock=lambda: float(next(ticks)))
    answer = invoke(handler, Invocation("t", program.hash), {**arrays_of_forward(), **content_of(program)})
    timings = answer.header["timings"]
    assert timings["init_ms"] == timings["compute_ms"] == 1000
    assert timings["fetch_ms"] == timings["push_ms"] == 0
    assert timings["total_ms"] == 5000


def test_rows_may_come_and_go_in_bf16():
    program, arrays = small.forward(), arrays_of_forward()
    sent = {**arrays, "rows.0": to_bf16(arrays["rows.0"]), **content_of(program)}
    answer = invoke(Handler(), Invocation("t", program.hash, precision="bf16"), sent)
    assert answer.arrays["output.0"].dtype == np.uint16


def test_sparse_rows_are_made_dense():
    program, weight = small.forward(), numbers(2, 3, 2)
    sparse = {
        "rows.0.indptr": np.array([0, 1, 1, 3]),
        "rows.0.indices": np.array([2, 0, 1], np.int32),
        "rows.0.values": np.array([5, 1, 2], np.float32),
    }
    sent = {**sparse, "weight.w": weight, **content_of(program)}
    answer = invoke(Handler(), Invocation("t", program.hash, {"rows.0": 3}), sent)
    dense = np.array([[0, 0, 5], [0, 0, 0], [1, 2, 0]], np.float32)
    np.testing.assert_allclose(answer.arrays["output.0"], dense @ weight, rtol=1e-5)


def sparse(num_rows):
    return {
        "rows.0.indptr": np.zeros(num_rows + 1, np.int64),
        "rows.0.indices": np.zeros(0, np.int32),
        "rows.0.values": np.zeros(0, np.float32),
    }


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        ({"rows.0": 20_000_000}, sparse(2)),
        ({"rows.0": 3, "rows.7": 20_000_000}, sparse(2) | {n.replace("0", "7"): a for n, a in sparse(2).items()}),
        ({}, {"rows.0": np.zeros(4000, np.int8), "rows.0.scale": np.zeros(4000, np.float32)}),
        ({}, {"rows.0": np.zeros((4000, 1, 1), np.int8), "rows.0.scale": np.zeros(4000, np.float32)}),
        ({}, {"rows.0": np.zeros((1000, 1000), np.uint16)}),
        ({}, {"rows.0": numbers(1, 2, 3), "rows.1": np.zeros((1000, 1000), np.uint16)}),
    ],
)
def test_rows_that_are_not_the_programs_are_refused_before_memory_is_allocated(columns, rows):
    program, handler = small.forward(), Handler()
    invoke(handler, Invocation("t", program.hash), {**arrays_of_forward(), **content_of(program)})
    sent = {**rows, "weight.w": numbers(2, 3, 2)}
    tracemalloc.start()
    try:
        answer = invoke(handler, Invocation("t", program.hash, columns), sent)
        assert tracemalloc.get_traced_memory()[1] < 4 * sum(array.nbytes for array in sent.values()) + (1 << 20)
    finally:
        tracemalloc.stop()
    assert answer.header["kind"] == "task"
    assert "rows." in answer.header["error"]


def test_outputs_too_large_for_a_frame_are_an_error_in_the_answer(monkeypatch):
    program = small.forward()
    monkeypatch.setattr("dorylus.functions.handler.LIMITS", FrameLimits(max_frame_bytes=10_000))
    answer = invoke(Handler(), Invocation("t", program.hash), {**arrays_of_forward(2000), **content_of(program)})
    assert answer.header["kind"] == "frame"
    assert "at most 10000" in answer.header["error"]


@pytest.mark.parametrize(
    ("invocation", "arrays", "kind", "message"),
    [
        ({"task": "t"}, {}, "frame", "no 'program'"),
        ({"task": "t", "program": "x", "precision": "int4"}, {}, "frame", "precision 'int4'"),
        ({"task": "t", "program": "x", "columns": {"rows.0": "3"}}, {}, "frame", "whole numbers"),
        ({"task": "t", "program": "x", "ports": {"rows": "a"}}, {}, "frame", "no 'weights'"),
        ({"task": "t", "program": "x"}, {CONTENT: np.zeros(3, np.uint8)}, "task", "was requested, but what came is"),
    ],
)
def test_an_error_is_in_the_answer_with_its_kind(invocation, arrays, kind, message):
    answer = invoke(Handler(), invocation, arrays)
    assert answer.header["kind"] == kind
    assert message in answer.header["error"]


def test_arrays_that_do_not_fit_the_program_are_the_tasks_error():
    program = small.forward()
    sent = {"rows.0": numbers(1, 4, 5), "weight.w": numbers(2, 3, 2), **content_of(program)}
    answer = invoke(Handler(), Invocation("t", program.hash), sent)
    assert answer.header["kind"] == "task"
    assert "rows.0" in answer.header["error"]


@pytest.mark.parametrize("request_bytes", [b"", b"garbage", b"DRYL" + bytes(100)])
def test_bytes_that_are_no_frame_are_answered_with_an_error_frame(request_bytes):
    answer = unpack(handle(request_bytes))
    assert answer.header["kind"] == "frame"
    assert "timings" in answer.header
