"""What a task computes, written down: the operations of a run on a few rows, one line each.

Two tasks with the same record have the same program. Writing it takes milliseconds where an export takes seconds, so it
is what finished exports are found by.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dorylus.functions.pure import Pure
from dorylus.functions.saving import place

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
