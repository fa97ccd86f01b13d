import numpy as np
import pytest
from onnx import TensorProto, helper, load_from_string
from small_programs import numbers

from dorylus.functions.program import ExportedProgram
from dorylus.functions.runner import Runner
from dorylus.functions.translate import content_of

FLOAT = TensorProto.FLOAT


def model_of(nodes, outputs):
    """A model over rows.0 and weight.w, as an exporter makes it: with the sizes of an example and with metadata."""
    inputs = {"rows.0": ["s0", 3], "weight.w": [2, 3]}
    values = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()]
    made = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    graph = helper.make_graph([helper.make_node(*node, **more) for node, more in nodes], "exported", values, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    for part in (model, graph, *model.graph.node):
        part.metadata_props.add(key="trace", value="/home/somebody/layers.py")
        part.doc_string = "/home/somebody/layers.py"
    return model


def run(content, num_rows):
    loaded = load_from_string(content)
    names = [array.name for array in loaded.graph.input]
    program = ExportedProgram.of(content, tuple(names), tuple(array.name for array in loaded.graph.output))
    runner = Runner()
    runner.load(program.hash, content)
    given = {"rows.0": numbers(0, num_rows, 3), "weight.w": numbers(1, 2, 3)}
    return given, runner.run(program.hash, {name: given[name] for name in names})


READ_AND_GIVEN = [
    (("Relu", ["rows.0"], ["relu"]), {}),
    (("Transpose", ["weight.w"], ["t"]), {"perm": [1, 0]}),
    (("MatMul", ["relu", "t"], ["product"]), {}),
    (("Identity", ["relu"], ["output.0"]), {}),
    (("Identity", ["product"], ["output.1"]), {}),
]


def test_an_output_that_is_also_read_keeps_its_readers():
    content = content_of(model_of(READ_AND_GIVEN, ["output.0", "output.1"]), [(7, 3), (7, 2)])
    given, found = run(content, 4)
    relu = np.maximum(given["rows.0"], 0)
    np.testing.assert_array_equal(found["output.0"], relu)
    np.testing.assert_allclose(found["output.1"], relu @ given["weight.w"].T, rtol=1e-5, atol=1e-6)
    assert "Identity" not in {node.op_type for node in load_from_string(content).graph.node}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([("rows.0", "output.0"), ("rows.0", "output.1")], 2),  # outputs that are inputs
        ([("relu", "output.0"), ("relu", "output.1")], 1),  # one value, given twice
        ([("relu", "copy"), ("copy", "again"), ("again", "output.0"), ("copy", "output.1")], 1),
    ],
)
def test_values_with_several_names_are_given_under_each(nodes, expected):
    made = [(("Relu", ["rows.0"], ["relu"]), {}), *((("Identity", [a], [b]), {}) for a, b in nodes)]
    content = content_of(model_of(made, ["output.0", "output.1"]), [(7, 3), (7, 3)])
    given, found = run(content, 5)
    want = given["rows.0"] if nodes[0][0] == "rows.0" else np.maximum(given["rows.0"], 0)
    assert all(np.array_equal(found[name], want) for name in ("output.0", "output.1"))
    assert sum(node.op_type == "Identity" for node in load_from_string(content).graph.node) == expected


def test_shapes_name_the_axis_of_rows():
    made = load_from_string(content_of(model_of(READ_AND_GIVEN, ["output.0", "output.1"]), [(7, 3), (7, 2)]))
    shapes = {
        array.name: [size.dim_param or size.dim_value for size in array.type.tensor_type.shape.dim]
        for array in (*made.graph.input, *made.graph.output)
    }
    assert shapes == {
        "rows.0": ["num_rows", 3], "weight.w": [2, 3], "output.0": ["num_rows", 3], "output.1": ["num_rows", 2],
    }  # fmt: skip


def test_a_program_does_not_name_its_source_files():
    assert b"somebody" not in content_of(model_of(READ_AND_GIVEN, ["output.0", "output.1"]), [(7, 3), (7, 2)])
