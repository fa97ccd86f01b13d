"""Programs made by hand, as small as can be: y = x w, its gradient, and a sum of squares as the loss."""

import numpy as np
from onnx import TensorProto, helper

from dorylus.functions.program import ExportedProgram

IN, OUT = 3, 2


def forward() -> ExportedProgram:
    """output.0 = rows.0 @ weight.w"""
    return _program(
        [helper.make_node("MatMul", ["rows.0", "weight.w"], ["output.0"])],
        {"rows.0": ["num_rows", IN], "weight.w": [IN, OUT]},
        {"output.0": ["num_rows", OUT]},
    )


def gradient() -> ExportedProgram:
    """The gradient of the above, for rows and weights."""
    nodes = [
        helper.make_node("Transpose", ["weight.w"], ["wt"], perm=[1, 0]),
        helper.make_node("Transpose", ["rows.0"], ["xt"], perm=[1, 0]),
        helper.make_node("MatMul", ["cotangent.0", "wt"], ["input_grad.0"]),
        helper.make_node("MatMul", ["xt", "cotangent.0"], ["weight_grad.w"]),
    ]
    return _program(
        nodes,
        {"rows.0": ["num_rows", IN], "cotangent.0": ["num_rows", OUT], "weight.w": [IN, OUT]},
        {"input_grad.0": ["num_rows", IN], "weight_grad.w": [IN, OUT]},
    )


def loss() -> ExportedProgram:
    """loss = sum of rows.0² / total; nothing but a sum comes back."""
    nodes = [
        helper.make_node("Mul", ["rows.0", "rows.0"], ["squares"]),
        helper.make_node("ReduceSum", ["squares"], ["sum"], keepdims=0),
        helper.make_node("Div", ["sum", "total"], ["loss"]),
    ]
    return _program(nodes, {"rows.0": ["num_rows", IN], "total": []}, {"loss": []})


def _program(nodes, inputs, outputs) -> ExportedProgram:
    def values(named):
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in named.items()]

    graph = helper.make_graph(nodes, "small", values(inputs), values(outputs))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return ExportedProgram.of(model.SerializeToString(), tuple(inputs), tuple(outputs))


def numbers(seed: int, *shape: int) -> np.ndarray:
    """Random float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
