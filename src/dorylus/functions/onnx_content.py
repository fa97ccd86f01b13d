"""An exported model as the content of a program: small, and the same bytes whenever and wherever it is made."""

from collections.abc import Iterator, Sequence
from typing import Any

from dorylus.functions.program import ROWS_AXIS, is_cut_by_row


def content_of(model: Any, shapes: Sequence[Sequence[int]]) -> bytes:
    """The bytes of an ONNX model; ``shapes`` are those that its outputs had for some number of rows."""
    _strip(model)
    _drop_identities(model.graph)
    for array in model.graph.input:
        _name_rows(array)
    for array, shape in zip(model.graph.output, shapes, strict=True):
        array.type.tensor_type.shape.Clear()
        for size in shape:
            array.type.tensor_type.shape.dim.add().dim_value = size
        _name_rows(array)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _strip(message: Any) -> None:
    """Take out what no runtime needs: where in whose code an operation stood, and shapes that can be inferred."""
    for field, value in message.ListFields():
        if field.name in ("metadata_props", "doc_string", "value_info"):
            message.ClearField(field.name)
        elif field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                _strip(part)


def _drop_identities(graph: Any) -> None:
    """Let whoever makes a value give it its last name, where a node did nothing else.

    ONNX Runtime's optimiser does so too, but where an output is also read it loses its readers and refuses the model.
    """
    given = {array.name for array in (*graph.input, *graph.initializer)}
    outputs = {array.name for array in graph.output}
    for node in [node for node in graph.node if node.op_type == "Identity"]:
        before, after = node.input[0], node.output[0]
        if after not in outputs:
            graph.node.remove(node)
            _rename(graph, after, before)
        elif before not in given | outputs:
            graph.node.remove(node)
            _rename(graph, before, after)


def _rename(graph: Any, old: str, new: str) -> None:
    for node in _nodes(graph):
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == old:
                    names[index] = new


def _nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph and of the graphs inside them, which see its values too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _name_rows(array: Any) -> None:
    """Say that the array's first axis are the rows, if it has one a row."""
    if is_cut_by_row(array.name):
        array.type.tensor_type.shape.dim[0].dim_param = ROWS_AXIS
