import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from small_programs import IN, OUT, forward, gradient, loss, numbers

import dorylus
from dorylus.functions.program import ExportedProgram, ProgramError
from dorylus.functions.runner import Runner, Whole, parts_of

FORWARD, GRADIENT, LOSS = forward(), gradient(), loss()


@pytest.fixture
def runner():
    made = Runner()
    for program in (FORWARD, GRADIENT, LOSS):
        made.load(program.hash, program.content)
    return made


def arrays(program, num_rows, seed=0):
    shapes = {"rows.0": (num_rows, IN), "cotangent.0": (num_rows, OUT), "weight.w": (IN, OUT)}
    drawn = {name: numbers(seed + k, *shape) for k, (name, shape) in enumerate(shapes.items())}
    drawn["total"] = np.array(4.0, np.float32)
    return {name: drawn[name] for name in program.inputs}


@pytest.mark.parametrize("num_rows", [1, 2, 1000])
def test_a_program_runs_on_any_number_of_rows(runner, num_rows):
    given = arrays(GRADIENT, num_rows)
    found = runner.run(GRADIENT.hash, given)
    x, w, cotangent = given["rows.0"], given["weight.w"], given["cotangent.0"]
    np.testing.assert_allclose(found["input_grad.0"], cotangent @ w.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["weight_grad.w"], x.T @ cotangent, rtol=1e-4, atol=1e-4)


def test_no_rows_give_empty_rows_and_sums_of_zero(runner):
    made = runner.run(GRADIENT.hash, arrays(GRADIENT, 0))
    assert made["input_grad.0"].shape == (0, IN)
    assert made["weight_grad.w"].tolist() == np.zeros((IN, OUT)).tolist()
    assert runner.run(FORWARD.hash, arrays(FORWARD, 0))["output.0"].shape == (0, OUT)
    assert runner.run(LOSS.hash, arrays(LOSS, 0))["loss"] == 0
    assert {array.dtype for array in made.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("part_rows", [1, 7, 25, 26, 100])
@pytest.mark.parametrize("program", [FORWARD, GRADIENT, LOSS], ids=["forward", "gradient", "loss"])
def test_parts_put_together_are_the_whole(runner, program, part_rows):
    given = arrays(program, 25)
    whole, parts = runner.run(program.hash, given), runner.run_in_parts(program.hash, given, part_rows)
    assert whole.keys() == parts.keys()
    for name, array in whole.items():
        np.testing.assert_allclose(parts[name], array, rtol=1e-5, atol=1e-5)


def test_no_rows_in_parts_are_no_rows(runner):
    assert runner.run_in_parts(FORWARD.hash, arrays(FORWARD, 0), 8)["output.0"].shape == (0, OUT)


def test_parts_are_cut_without_copying():
    given = arrays(FORWARD, 10)
    first, second, third = parts_of(given, 10, 4)
    assert np.shares_memory(first["rows.0"], given["rows.0"])
    assert [len(part["rows.0"]) for part in (first, second, third)] == [4, 4, 2]
    assert all(part["weight.w"] is given["weight.w"] for part in (first, second, third))


def test_parts_of_no_rows_are_refused():
    with pytest.raises(ProgramError, match="parts of 0 rows: a part has at least one"):
        list(parts_of({}, 10, 0))


def test_where_rows_are_sent_on_only_the_sums_are_kept(runner):
    whole = Whole(runner.loaded(GRADIENT.hash), None)
    for seed in range(3):
        whole.add(runner.run(GRADIENT.hash, arrays(GRADIENT, 5, seed)))
    assert list(whole.arrays) == ["weight_grad.w"]


def test_arrays_that_are_views_are_taken_as_they_are(runner):
    given = arrays(FORWARD, 10)
    odd = given["rows.0"][1::2]
    odd.setflags(write=False)
    found = runner.run(FORWARD.hash, {**given, "rows.0": odd})["output.0"]
    np.testing.assert_allclose(found, odd @ given["weight.w"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows.0": None}, r"takes rows.0, weight.w, but was given weight.w: give those"),
        ({"rows.1": numbers(0, 4, IN)}, r"takes rows.0, weight.w, but was given rows.0, rows.1, weight.w"),
        ({"rows.0": numbers(0, 4, IN + 1)}, r"takes rows.0 as float32\[rows, 3\], but was given float32\[4, 4\]"),
        ({"rows.0": numbers(0, 4, IN, 1)}, r"takes rows.0 as float32\[rows, 3\], but was given float32\[4, 3, 1\]"),
        ({"rows.0": numbers(0, IN)}, r"takes rows.0 as float32\[rows, 3\], but was given float32\[3\]"),
        ({"rows.0": np.zeros((4, IN))}, r"takes rows.0 as float32\[rows, 3\], but was given float64\[4, 3\]"),
        ({"rows.0": np.zeros((4, IN), ">f4")}, r"takes rows.0 as float32\[rows, 3\], but was given >f4\[4, 3\]"),
        ({"weight.w": numbers(0, OUT, IN)}, r"takes weight.w as float32\[3, 2\], but was given float32\[2, 3\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(runner, changes, message):
    given = {name: array for name, array in (arrays(FORWARD, 4) | changes).items() if array is not None}
    with pytest.raises(ProgramError, match=message):
        runner.run(FORWARD.hash, given)


def test_arrays_of_different_numbers_of_rows_are_refused(runner):
    given = arrays(GRADIENT, 4) | {"cotangent.0": numbers(0, 5, OUT)}
    for run in (runner.run, lambda *given: runner.run_in_parts(*given, 2)):
        with pytest.raises(ProgramError, match=r"arrays of \[4, 5\] rows were given"):
            run(GRADIENT.hash, given)


def test_a_content_that_is_not_the_programs_is_not_loaded():
    runner = Runner()
    with pytest.raises(ProgramError, match=f"program {FORWARD.hash[:12]} was requested, but what came is"):
        runner.load(FORWARD.hash, GRADIENT.content)
    assert not runner.known(FORWARD.hash)


@pytest.mark.parametrize("content", [b"", b"no onnx at all", FORWARD.content[: len(FORWARD.content) // 2]])
def test_a_content_that_is_no_program_is_refused(content):
    with pytest.raises(ProgramError, match="cannot be loaded"):
        Runner().load(ExportedProgram.of(content, (), ()).hash, content)


def model(inputs, outputs, initializers=(), operation="Add"):
    def values(named):
        return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in named.items()]

    node = helper.make_node(operation, [*inputs, *(each.name for each in initializers)], list(outputs))
    graph = helper.make_graph([node], "made", values(inputs), values(outputs), list(initializers))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return ExportedProgram.of(made.SerializeToString(), tuple(inputs), tuple(outputs))


FLOAT, STRING = TensorProto.FLOAT, TensorProto.STRING


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (model({"x": (FLOAT, ["n", 2])}, {"y": (FLOAT, ["n", 2])}, operation="Relu"), "no array is called 'x'"),
        (
            model({"rows.0": (FLOAT, ["n", "f"])}, {"output.0": (FLOAT, ["n", "f"])}, operation="Relu"),
            "only the number of rows may vary",
        ),
        (
            model({"rows.0": (FLOAT, [4, 2])}, {"output.0": (FLOAT, [4, 2])}, operation="Relu"),
            "only the number of rows may vary",
        ),
        (
            model({"rows.0": (STRING, ["n"])}, {"output.0": (STRING, ["n"])}, operation="Identity"),
            "a type that no program of Dorylus has",
        ),
    ],
)  # fmt: skip
def test_a_program_whose_arrays_are_not_as_agreed_is_refused(program, message):
    with pytest.raises(ProgramError, match=message):
        Runner().load(program.hash, program.content)


def test_a_program_that_would_read_a_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "secret").write_bytes(numbers(0, 2).tobytes())
    monkeypatch.chdir(tmp_path)
    for place in ("secret", str(tmp_path / "secret")):
        weight = TensorProto(name="w", data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
        weight.external_data.add(key="location", value=place)
        program = model({"rows.0": (FLOAT, ["n", 2])}, {"output.0": (FLOAT, ["n", 2])}, [weight])
        with pytest.raises(ProgramError, match="cannot be loaded"):
            Runner().load(program.hash, program.content)


def test_the_error_of_a_program_that_fails_gives_the_number_of_rows():
    inputs = {"rows.0": (FLOAT, ["n", 2]), "labels": (TensorProto.INT64, ["n"])}
    program = model(inputs, {"output.0": (FLOAT, ["n", 2])}, operation="Gather")
    runner = Runner()
    runner.load(program.hash, program.content)
    with pytest.raises(ProgramError, match="failed on 3 rows"):
        runner.run(program.hash, {"rows.0": numbers(0, 3, 2), "labels": np.array([0, 1, 9])})


def test_a_program_not_loaded_is_named():
    with pytest.raises(ProgramError, match=f"program {FORWARD.hash[:12]} is not loaded"):
        Runner().run(FORWARD.hash, {})


def test_the_program_that_ran_longest_ago_is_forgotten():
    runner = Runner(max_programs=2)
    runner.load(FORWARD.hash, FORWARD.content)
    runner.load(GRADIENT.hash, GRADIENT.content)
    runner.run(FORWARD.hash, arrays(FORWARD, 2))
    runner.load(LOSS.hash, LOSS.content)
    assert [runner.known(program.hash) for program in (FORWARD, GRADIENT, LOSS)] == [True, False, True]


def test_several_threads_may_run_one_program(runner):
    given = [arrays(GRADIENT, 50, seed) for seed in range(8)]
    expected = [runner.run(GRADIENT.hash, each) for each in given]
    found = [None] * len(given)

    def work(index):
        found[index] = runner.run(GRADIENT.hash, given[index])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for want, got in zip(expected, found, strict=True):
        assert all(np.array_equal(want[name], got[name]) for name in want)


ALONE = """
import os, sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "onnx", "onnxscript", "scipy", "zmq"):
            raise ImportError(f"{name} is not in a function")
sys.meta_path.insert(0, NoTorch())
from dorylus.functions import program, runner
kept = dict(os.environ)
runner.Runner()
assert dict(os.environ) == kept
"""


def test_a_function_needs_no_torch_to_run_programs():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


TELEMETRY = """
import os
os.environ["HOME"] = os.environ["XDG_CACHE_HOME"] = {home!r}
from dorylus.functions.runner import Runner
Runner()
"""


def test_the_runtime_keeps_no_device_id_and_no_reports(tmp_path):
    source = str(Path(dorylus.__file__).parents[1])
    script = f"import sys; sys.path.insert(0, {source!r})" + TELEMETRY.format(home=str(tmp_path))
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, cwd=tmp_path)
    assert list(tmp_path.rglob("*")) == []
