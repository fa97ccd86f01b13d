"""What the data ports answer, called without a port."""

import tracemalloc

import numpy as np
import pytest
from linear_functions import PROGRAMS, WEIGHTS, a_call

from dorylus.functions.invocation import CONTENT
from dorylus.functions.payload import narrow
from dorylus.pools.functions.data_service import DataService, WeightVersions
from dorylus.pools.functions.invocations import UsageCounter
from dorylus.pools.functions.tasks import Inputs, OpenTask, TaskWork, even
from dorylus.saga.dense import Mode
from dorylus.wire.frames import Frame, Refused


class Opened:
    """A service with one open task of ten rows in parts of four."""

    def __init__(self, mode=Mode.GRADIENT, precision="float32"):
        self.usage, self.completed = UsageCounter(), []
        self.versions = WeightVersions("run")
        self.service = DataService(self.versions, self.usage, precision, self.completed.append)
        self.call, self.program = a_call(mode), PROGRAMS[mode]
        self.task = OpenTask("task-1", self.call)
        inputs = Inputs(self.call, self.program)
        self.task.work = TaskWork(self.call, self.program, inputs, even(10, 4), precision, sums_apart=False)
        self.version = self.versions.use(WEIGHTS)
        self.service.open(self.task, self.program)

    def rows(self, ask, arrays=None, **header):
        return self.service.answer_rows(Frame({"ask": ask, "task": "task-1", **header}, arrays or {}))

    def weights(self, ask, arrays=None, **header):
        return self.service.answer_weights(Frame({"ask": ask, "task": "task-1", **header}, arrays or {}))

    def grads(self, part):
        return {"input_grad.0": np.full((2 if part == 2 else 4, 5), part, np.float32)}

    def sums(self):
        return {f"weight_grad.{name}": np.ones(tuple(weight.shape), np.float32) for name, weight in WEIGHTS.items()}

    def complete(self):
        for part in range(3):
            self.rows("take", self.grads(part), part=part)
        self.weights("take", self.sums())


def test_rows_are_given_part_by_part():
    opened = Opened()
    part = opened.rows("rows", part=2).arrays
    np.testing.assert_array_equal(part["rows.0"], opened.call.inputs[0].numpy()[8:])
    np.testing.assert_array_equal(part["cotangent.0"], opened.call.cotangents[0].numpy()[8:])


def test_rows_are_narrowed_on_their_way():
    assert Opened(precision="int8").rows("rows", part=0).arrays["rows.0"].dtype == np.int8


def test_weights_are_given_by_version_and_programs_by_hash():
    opened = Opened()
    given = opened.weights("weights", version=opened.version, names=["weight.bias"]).arrays
    np.testing.assert_array_equal(given["weight.bias"], WEIGHTS["bias"].detach().numpy())
    content = opened.weights("program", program=opened.program.hash).arrays[CONTENT]
    assert content.tobytes() == opened.program.content


def test_a_task_is_complete_when_rows_and_sums_have_come_and_not_before():
    opened = Opened()
    opened.weights("take", opened.sums())
    for part in range(3):
        assert opened.completed == []
        assert opened.rows("take", opened.grads(part), part=part).header == {"taken": True}
    assert opened.completed == [opened.task]


def test_a_part_brought_again_is_not_taken_but_counted():
    opened = Opened()
    opened.rows("take", opened.grads(0), part=0)
    assert opened.rows("take", opened.grads(0), part=0).header == {"taken": False}
    opened.weights("take", opened.sums())
    assert opened.weights("take", opened.sums()).header == {"taken": False}
    assert opened.usage.total().duplicates == 2


def test_requests_for_a_task_that_is_over_are_refused_and_counted():
    opened = Opened()
    opened.service.withdraw(opened.task)
    for request in (
        lambda: opened.rows("rows", part=0),
        lambda: opened.rows("take", opened.grads(0), part=0),
        lambda: opened.weights("take", opened.sums()),
        lambda: opened.weights("weights", version=opened.version, names=["weight.bias"]),
        lambda: opened.weights("program", program=opened.program.hash),
    ):
        with pytest.raises(Refused, match="the task is over"):
            request()
    assert opened.usage.total().duplicates == 2


@pytest.mark.parametrize(
    ("port", "ask", "header", "message"),
    [
        ("rows", "rows", {"part": 3}, "from 0 to 2"),
        ("rows", "rows", {"part": -1}, "from 0 to 2"),
        ("rows", "rows", {"part": "0"}, "from 0 to 2"),
        ("rows", "rows", {}, "from 0 to 2"),
        ("rows", "weights", {"part": 0}, "has no"),
        ("rows", "rows", {"part": 0, "task": "another"}, "was never here"),
        ("rows", "rows", {"part": 0, "task": ["task-1"]}, "was never here"),
        ("rows", "take", {"part": 0}, "not the outputs of the task"),
        ("weights", "take", {}, "not the outputs of the task"),
        ("weights", "rows", {}, "has no"),
        ("weights", "program", {"program": "unknown"}, "no open task runs that program"),
        ("weights", "weights", {"version": "old", "names": []}, "no task uses version old"),
        ("weights", "weights", {"version": "run-0", "names": ["weight.x"]}, "has no weight.x"),
        ("weights", "weights", {"version": "run-0", "names": ["rows.0"]}, "has no rows.0"),
        ("weights", "weights", {"version": "run-0", "names": "weight.bias"}, "lists their names"),
    ],
)
def test_any_other_request_is_refused(port, ask, header, message):
    opened = Opened()
    with pytest.raises(Refused, match=message):
        getattr(opened, port)(ask, **header)


LONG = 4000  # of a vector with as many scales: widened, it would take 64 MB


@pytest.mark.parametrize(
    ("precision", "brought"),
    [
        ("int8", {"input_grad.0": np.zeros(LONG, np.int8), "input_grad.0.scale": np.zeros(LONG, np.float32)}),
        ("int8", {"input_grad.0": np.zeros((LONG, 1, 1), np.int8), "input_grad.0.scale": np.zeros(LONG, np.float32)}),
        ("float32", {"input_grad.0": np.zeros(LONG, np.int8), "input_grad.0.scale": np.zeros(LONG, np.float32)}),
        ("float32", {"input_grad.0": np.zeros((LONG, LONG // 8), np.uint16)}),
        ("bf16", {"input_grad.0": np.zeros((LONG, LONG // 8), np.uint16)}),
        ("int8", {f"output.{i}": np.zeros((LONG, 500), np.uint16) for i in range(3)}),
    ],
)
def test_outputs_of_another_shape_are_refused_before_memory_is_allocated(precision, brought):
    opened = Opened(precision=precision)
    tracemalloc.start()
    try:
        with pytest.raises(Refused, match="arrived"):
            opened.rows("take", brought, part=0)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("precision", "dtype"), [("float32", np.float32), ("bf16", np.uint16), ("int8", np.int8)])
def test_outputs_are_taken_in_the_requested_precision_and_no_other(precision, dtype):
    opened = Opened(precision=precision)
    for other in {"float32", "bf16", "int8"} - {precision}:
        with pytest.raises(Refused, match="arrived"):
            opened.rows("take", narrow(opened.grads(0), other), part=0)
    brought = narrow(opened.grads(1), precision)
    assert brought["input_grad.0"].dtype == dtype
    assert opened.rows("take", brought, part=1).header == {"taken": True}


@pytest.mark.parametrize("port", ["rows", "weights"])
def test_any_client_with_a_key_may_say_hello(port):
    assert getattr(Opened(), port)("hello").header == {"hello": port}


def test_bytes_are_counted_both_ways():
    opened = Opened()
    opened.rows("rows", part=0)
    opened.rows("take", opened.grads(0), part=0)
    usage = opened.usage.snapshot()["AV"]
    assert (usage.bytes_in, usage.bytes_out) == (4 * (5 + 3) * 4, 4 * 5 * 4)
