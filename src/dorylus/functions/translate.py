"""From a pure function to ONNX: its operations are traced for any number of rows, then written as a program.

The way is make_fx (which follows autograd), torch.export (which settles what depends on the number of rows) and
torch.onnx (which knows the operations). Tracers patch torch for the time they work: one export at a time.
"""

import logging
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx

from dorylus.errors import TrainingError
from dorylus.functions.onnx_content import content_of
from dorylus.functions.program import ROWS_AXIS, Program, is_cut_by_row
from dorylus.functions.pure import Pure
from dorylus.functions.stable import STABLE
from dorylus.functions.unexportable import check_pure

_ONE_AT_A_TIME = threading.Lock()
_DEADLINE_S = 300.0
_NUM_ROWS = 101  # of the example that is traced
_CHATTER = ("torch.__trace", "torch.onnx", "torch.export", "onnxscript", "onnx_ir")


def translate(pure: Pure) -> Program:
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
    return Program.of(content_of(made.model_proto, shapes), tuple(names), pure.outputs, pure.kept)


def _traced(pure: Pure, arguments: Sequence[Tensor]) -> fx.GraphModule:
    """The operations, for any number of rows."""
    from torch._decomp import decomposition_table
    from torch.fx.experimental.proxy_tensor import make_fx

    # ONNX knows few gradients: torch says what they are made of.
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
    """The numbers of the arguments whose values are needed; the others are taken out."""
    places = [node for node in traced.graph.nodes if node.op == "placeholder"]
    by_row = [place for name, place in zip(pure.inputs, places, strict=True) if is_cut_by_row(name)]
    in_use = [place for place in by_row if not all(map(_is_size, place.users))]
    for place in by_row:
        for size in filter(_is_size, list(place.users)):  # the number of rows: any array in use can tell it
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
    """Exporters tell what they do, by warnings and by loggers: users asked for neither."""
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
