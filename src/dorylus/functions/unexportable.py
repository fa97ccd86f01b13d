"""Bodies that no program can be made of: why, in the words of whoever wrote the layer, and what still runs them.

What a task computes, written down: the operations of a run on a few rows, one line each.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tag, Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode

from dorylus.errors import ConfigError
from dorylus.functions.pure import Pure, place
from dorylus.saga import Call, Mode

POOLS_WITH_TORCH = ("threads", "ray")  # those that run a body itself, so that it may be anything

_OPERATION = re.compile(r"torch\.ops\.([\w.]+?)(?:\.default)?\b(?![.\w])|OpOverload\(op='([\w.]+)'")
_TASKS = {Mode.FORWARD: "forward task", Mode.GRADIENT: "gradient task", Mode.LOSS: "task with the loss"}


class ExportError(ConfigError):
    """A body that cannot be exported: it names the operation, the layer, and the pools that still run it."""


class UnexportableError(Exception):
    """Why a body cannot be exported, in words that follow "because"."""


def refusal(call: Call, error: BaseException) -> ExportError:
    """The error that tells a user why the program of a call could not be made."""
    pools = " or ".join(f'pool="{name}"' for name in POOLS_WITH_TORCH)
    return ExportError(
        f"the {_TASKS[call.mode]} of {call.body.label} cannot be exported for functions, because {_reason(error)}. "
        f"Functions run ONNX, not Python: change the body, or run it with {pools}."
    )


def check_pure(traced: fx.GraphModule) -> None:
    """Refuse operations that give something else each time: random draws, and changes to the module's own state."""
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
    told = "\n".join(str(each) for each in _causes(error))
    operation = _OPERATION.search(told)
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


_SIZES = (3, 5)  # a number that follows the rows is not the same in both


def record(pure: Pure) -> str:
    """The hash of every operation of the task, of all constants in it, and of its arrays' names."""
    lines = []
    for num_rows in _SIZES:
        arguments = pure.arguments(pure.example(num_rows))
        shapes = (
            f"{name} {tensor.dtype}{list(tensor.shape)}" for name, tensor in zip(pure.inputs, arguments, strict=True)
        )
        lines.append(f"inputs {', '.join(shapes)}")
        with _Recorder(arguments) as recorder:
            made = pure(*arguments)
        lines += [*recorder.lines, f"outputs {pure.outputs} {recorder.told(made)}"]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every operation with its arguments: tensors by number, constants by content, the rest in words."""

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lines: list[str] = []
        self._numbers: dict[object, int] = {}
        self._alive: list[Tensor] = []  # a number stands for a place in memory, which must not be used again
        for tensor in arguments:
            self._number(tensor)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = self.told([args, dict(kwargs or {})])
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, Tensor):
                self._number(tensor)
        self.lines.append(f"{func} {given} -> {self.told(made)}")
        return made

    def told(self, value: object) -> str:
        """A value in words that are the same whenever the task is recorded."""
        if isinstance(value, Tensor):
            number = self._numbers.get(place(value))
            return f"constant {self._content(value)}" if number is None else f"%{number}"
        if isinstance(value, tuple | list):
            return f"[{', '.join(map(self.told, value))}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{name}={self.told(each)}' for name, each in value.items())}}}"
        return repr(value)

    def _number(self, tensor: Tensor) -> None:
        self._alive.append(tensor)
        self._numbers.setdefault(place(tensor), len(self._numbers))

    def _content(self, tensor: Tensor) -> str:
        array = tensor.detach().contiguous().numpy()
        self._number(tensor)
        return f"{array.dtype}{list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()}"
