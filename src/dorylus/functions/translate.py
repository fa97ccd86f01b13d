"""From a pure function to ONNX: its operations are traced for any number of rows, then written as a program.

The steps are make_fx (which follows autograd), torch.export (which settles what depends on the number of rows) and
torch.onnx (which translates the operations). Tracers patch torch while they work, so exports run one at a time. A body
that no program can be made of is refused with the operation that prevents it.
"""

import logging
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tag, Tensor, fx

from dorylus.errors import ConfigError, TrainingError, given
from dorylus.functions.program import ROWS_AXIS, ExportedProgram, is_cut_by_row
from dorylus.functions.pure import Pure
from dorylus.saga import Call, Mode

_REDUCED: Final[Mapping[int, Callable[[Tensor], Tensor]]] = {0: lambda x: x, 1: torch.mean, 2: torch.sum}
_ONE_AT_A_TIME = threading.Lock()
_DEADLINE_S = 300.0
_NUM_ROWS = 101  # of the example that is traced
_CHATTER = ("torch.__trace", "torch.onnx", "torch.export", "onnxscript", "onnx_ir")
_OPERATION = re.compile(r"torch\.ops\.([\w.]+?)(?:\.default)?\b(?![.\w])|OpOverload\(op='([\w.]+)'")
_TASKS = {Mode.FORWARD: "forward task", Mode.GRADIENT: "gradient task", Mode.LOSS: "task with the loss"}


def _log_sigmoid(x: Tensor) -> Tensor:
    return torch.clamp(x, max=0) - torch.log1p(torch.exp(-torch.abs(x)))


def _log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    return _log_sigmoid(x), torch.exp(-torch.abs(x))  # the second is the input of the gradient


def _binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    positive = target if pos_weight is None else target * pos_weight
    loss = -(positive * _log_sigmoid(x) + (1 - target) * _log_sigmoid(-x))
    return _REDUCED[reduction](loss if weight is None else loss * weight)


# The exporter's versions of these operations lose precision far from zero: they are composed of others that do not.
STABLE: Final[Mapping[Any, Any]] = {
    torch.ops.aten.log_sigmoid_forward.default: _log_sigmoid_forward,
    torch.ops.aten.binary_cross_entropy_with_logits.default: _binary_cross_entropy_with_logits,
}


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
    """Remove what no runtime needs: source locations of operations, and shapes that can be inferred."""
    for field, value in message.ListFields():
        if field.name in ("metadata_props", "doc_string", "value_info"):
            message.ClearField(field.name)
        elif field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                _strip(part)


def _drop_identities(graph: Any) -> None:
    """Remove nodes that only rename a value: the node that computes it takes the last name.

    ONNX Runtime's optimiser does so too, but refuses the model where an output is also read.
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
    """Name the array's first axis as that of rows, if it is cut by row."""
    if is_cut_by_row(array.name):
        array.type.tensor_type.shape.dim[0].dim_param = ROWS_AXIS


def translate(pure: Pure) -> ExportedProgram:
    """The program of a pure function."""
    with _alone(), _silence():
        arguments = pure.arguments(pure.example(_NUM_ROWS))
        shapes = [tensor.shape for tensor in pure(*arguments)]
        traced = _traced(pure, arguments)
        kept = _needed(pure, traced)
        names = [pure.inputs[index] for index in kept]
        dynamic = tuple({0: torch.export.Dim(ROWS_AXIS)} if is_cut_by_row(name) else None for name in names)
        given = tuple(arguments[index] for index in kept)
        exported = torch.export.export(traced, given, dynamic_shapes=dynamic, strict=False)
        made = torch.onnx.export(
            exported, (), dynamo=True, verbose=False, optimize=False, verify=False, input_names=names,
            output_names=pure.outputs,
        )  # fmt: skip
    assert made is not None
    return ExportedProgram.of(content_of(made.model_proto, shapes), tuple(names), pure.outputs, pure.kept)


def _traced(pure: Pure, arguments: Sequence[Tensor]) -> fx.GraphModule:
    """The operations, for any number of rows."""
    from torch._decomp import decomposition_table
    from torch.fx.experimental.proxy_tensor import make_fx

    # ONNX has few gradients: torch decomposes them.
    made_of: dict[Any, Any] = {each: made for each, made in decomposition_table.items() if "backward" in str(each)}
    trace = make_fx(pure, {**made_of, **STABLE}, tracing_mode="symbolic", _allow_non_fake_inputs=True)
    traced: fx.GraphModule = trace(*_shapes_of(pure, arguments))
    check_pure(traced)
    traced.graph.eliminate_dead_code()
    return traced


def _shapes_of(pure: Pure, arguments: Sequence[Tensor]) -> list[Tensor]:
    """Tensors without values, of the arguments' shapes; the number of rows is a symbol, the same in all."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    made: list[Tensor] = []
    for name, tensor in zip(pure.inputs, arguments, strict=True):
        sizes = [DimDynamic.STATIC] * tensor.dim()
        if is_cut_by_row(name):
            sizes[0] = DimDynamic.DUCK
        made.append(mode.from_tensor(tensor, symbolic_context=StatelessSymbolicContext(sizes)))
    return made


def _is_size(node: fx.Node) -> bool:
    return node.target is torch.ops.aten.sym_size.int


def _needed(pure: Pure, traced: fx.GraphModule) -> list[int]:
    """The numbers of the arguments whose values are needed; the others are removed."""
    places = [node for node in traced.graph.nodes if node.op == "placeholder"]
    by_row = [place for name, place in zip(pure.inputs, places, strict=True) if is_cut_by_row(name)]
    in_use = [place for place in by_row if not all(map(_is_size, place.users))]
    for place in by_row:
        for size in filter(_is_size, list(place.users)):  # the number of rows: the same in any array in use
            size.replace_input_with(place, in_use[0] if in_use else by_row[0])
    needed = [index for index, place in enumerate(places) if place.users]
    for place in places:
        if not place.users:
            traced.graph.erase_node(place)
    traced.recompile()
    return needed


@contextmanager
def _alone() -> Iterator[None]:
    if not _ONE_AT_A_TIME.acquire(timeout=_DEADLINE_S):
        raise TrainingError(f"the exports of other threads have not ended within {_DEADLINE_S:.0f} s.")
    try:
        yield
    finally:
        _ONE_AT_A_TIME.release()


@contextmanager
def _silence() -> Iterator[None]:
    """Silences the warnings and loggers of exporters, which users cannot act on."""
    loggers = [logging.getLogger(name) for name in _CHATTER]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


class ExportError(ConfigError):
    """A body that cannot be exported: it names the operation, the layer, and the pools that still run it."""


class UnexportableError(Exception):
    """The reason why a body cannot be exported, as a clause after "because"."""


def refusal(call: Call, error: BaseException, torch_pools: Sequence[str]) -> ExportError:
    """The error that says why the program of a call could not be made. ``torch_pools`` run such a body all the same."""
    pools = " or ".join(given("pool", name) for name in torch_pools) or "a pool that runs torch"
    return ExportError(
        f"the {_TASKS[call.mode]} of {call.body.label} cannot be exported for functions, because {_reason(error)}. "
        f"Functions run ONNX, not Python: change the body, or run it with {pools}."
    )


def check_pure(traced: fx.GraphModule) -> None:
    """Refuse operations whose result changes from call to call: random draws, and writes to the module's state."""
    for node in traced.graph.nodes:
        tags = getattr(node.target, "tags", ())
        if Tag.nondeterministic_seeded in tags:
            raise UnexportableError(
                f"{_name(node)} draws random numbers (randomness is the graph server's: use dropout= of the layer)"
            )
        if any(isinstance(each, fx.Node) and each.op == "get_attr" for each in _written(node)):
            raise UnexportableError(f"{_name(node)} changes a tensor that the module keeps from one call to the next")


def _written(node: fx.Node) -> list[object]:
    """The arguments that an operation writes to."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    given = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False)) | dict(node.kwargs)
    return [
        given.get(each.name) for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write
    ]


def _name(node: fx.Node) -> str:
    return str(node.target).removesuffix(".default")


def _reason(error: BaseException) -> str:
    kinds = {type(each).__name__ for each in _causes(error)}
    if isinstance(error, UnexportableError):
        return str(error)
    if kinds & {"GuardOnDataDependentSymNode", "DataDependentOutputException"}:
        return (
            "which operations it runs depends on the values in a tensor (aten._local_scalar_dense: an `if`, a loop or "
            "`.item()` over one; torch.where does without)"
        )
    if "ConstraintViolationError" in kinds:
        return "its operations depend on the number of rows (aten.sym_size: a loop over rows, int() or len() of them)"
    texts = "\n".join(str(each) for each in _causes(error))
    operation = _OPERATION.search(texts)
    if operation is not None and kinds & {"DispatchError", "ConversionError"}:
        return f"ONNX has nothing for its operation {operation[1] or operation[2]}"
    where = f" ({operation[1] or operation[2]})" if operation is not None else ""
    return f"following it fails{where}: {type(error).__name__}: {str(error).strip().partition(chr(10))[0].rstrip('.')}"


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
