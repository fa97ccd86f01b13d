"""Export of dense tasks: the program of a call, made once for all calls with its signature.

Finished programs are cached by a hash of the operations that torch runs for the task on a few rows. A new program is
compared with torch on random rows, whole and in parts, before it is used.
"""

import hashlib
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dorylus.errors import ConfigError, TrainingError
from dorylus.functions.program import ArrayRole, ExportedProgram, called
from dorylus.functions.program_cache import ProgramCache
from dorylus.functions.pure import Pure, place, signature
from dorylus.functions.runner import Runner
from dorylus.functions.translate import UnexportableError, refusal, translate
from dorylus.saga import Call, Mode, dense

_ROW_COUNTS = (1, 37)
_PART_ROWS = 16
_OF_LARGEST = 1e-5
_TIMES_OWN = 16  # the tolerance, in units of the change that the last bits of the rows make
_LAST_BIT = 2.0**-23

Arrays = dict[str, NDArray[Any]]
_FORMAT = 3  # raise it when the export changes, so that cached programs are made again
_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime")
_DEADLINE_S = 300.0
_NOTHING = ExportedProgram.of(b"", (), ())
_RECORDED_ROWS = (3, 5)  # two numbers of rows show which sizes depend on it


def disagreement(pure: Pure, program: ExportedProgram) -> str | None:
    """A sentence on how the program and torch differ; None if they do not."""
    runner = Runner()
    runner.load(program.hash, program.content)
    for seed, num_rows in enumerate(_ROW_COUNTS):
        call = pure.example(num_rows, seed)
        given = dict(zip(pure.inputs, pure.arguments(call), strict=True))
        arrays = {name: given[name].numpy() for name in program.inputs}
        expected, nearby = _by_torch(pure, call), _by_torch(pure, _moved(call))
        found = runner.run(program.hash, arrays)
        if (worst := _difference(found, expected, nearby)) is not None:
            return f"its program does not do what torch does: with {num_rows} rows {worst}"
        found = runner.run_in_parts(program.hash, arrays, _PART_ROWS)
        if (worst := _difference(found, expected, nearby)) is not None:
            return f"a row's output depends on which rows come with it: with {num_rows} rows in parts {worst}"
    return None


def _moved(call: Call) -> Call:
    """The call with every entry of its rows changed in about its last bit."""
    random = torch.Generator().manual_seed(0)

    def moved(rows: Any) -> Tensor:
        up: Tensor = torch.randint(2, rows.shape, generator=random) * 2 - 1
        return rows * (1 + _LAST_BIT * up)  # type: ignore[no-any-return]

    return replace(call, inputs=tuple(map(moved, call.inputs)))


def _by_torch(pure: Pure, call: Call) -> Arrays:
    """Torch's outputs for a call, by name."""
    reply = dense.run(call)
    made = {} if pure.kept is None else pure.handed_over(call)
    made |= {called(ArrayRole.OUTPUT, index): output for index, output in enumerate(reply.outputs)}
    made |= {
        called(ArrayRole.INPUT_GRAD, index): grad for index, grad in enumerate(reply.input_grads) if grad is not None
    }
    made |= {called(ArrayRole.WEIGHT_GRAD, name): grad for name, grad in reply.weight_grads.items()}
    arrays = {name: tensor.numpy() for name, tensor in made.items()}
    return arrays | ({called(ArrayRole.LOSS): np.array(reply.loss, np.float32)} if call.mode is Mode.LOSS else {})


def _difference(found: Arrays, expected: Arrays, nearby: Arrays) -> str | None:
    if expected.keys() != found.keys():
        return f"it returns {sorted(found)}, where torch returns {sorted(expected)}"
    for name, want in expected.items():
        got = found[name]
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"{name} is {got.dtype}{list(got.shape)}, where torch returns {want.dtype}{list(want.shape)}"
        slack = _OF_LARGEST * max(1.0, _largest(want)) + _TIMES_OWN * _largest(want - nearby[name])
        if not np.allclose(got, want, rtol=_OF_LARGEST, atol=slack, equal_nan=True):
            return f"{name} differs from torch's by up to {_largest(got - want):.2g}"
    return None


def _largest(array: NDArray[Any]) -> float:
    """The largest entry that is finite, by size."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def export(call: Call, torch_pools: Sequence[str] = ()) -> ExportedProgram:
    """The program of a call, exported and checked against torch. Raises ExportError if it cannot be exported."""
    return _explained(call, lambda: _made(Pure(call)), torch_pools)


class Exports:
    """The programs of a run: each is made at most once, by the thread that asks first; the others wait for it.

    A program made in an earlier run is read from ``cache``; None keeps nothing on disk. ``torch_pools`` are the names
    of the pools that run a body which cannot be exported.
    """

    def __init__(self, cache: ProgramCache | None = None, torch_pools: Sequence[str] = ()) -> None:
        self._cache, self._torch_pools = cache, torch_pools
        self._lock = threading.Lock()
        self._programs: dict[Hashable, Future[ExportedProgram]] = {}
        self.num_made = 0

    def program(self, call: Call) -> ExportedProgram:
        """The program for a call and for all with the same signature; a program without outputs is not run."""
        return self._once(signature(call), lambda: _explained(call, lambda: self._found(call), self._torch_pools))

    def _found(self, call: Call) -> ExportedProgram:
        pure = Pure(call)
        key = _key(pure)
        # Bodies of other plans, such as evaluation's, may run the same operations and then share a program.
        return self._once(key, lambda: self._from_disk(pure, key))

    def _from_disk(self, pure: Pure, key: str) -> ExportedProgram:
        found = None if self._cache is None else self._cache.get(key)
        if found is not None:
            return found
        program = _made(pure)
        with self._lock:
            self.num_made += 1
        if self._cache is not None:
            self._cache.put(key, program)
        return program

    def _once(self, name: Hashable, make: Callable[[], ExportedProgram]) -> ExportedProgram:
        with self._lock:
            first = name not in self._programs
            future = self._programs.setdefault(name, Future())
        if not first:
            return _waited(future)
        try:
            program = make()
        except BaseException as error:
            future.set_exception(error)
            raise
        future.set_result(program)
        return program


def _waited(future: Future[ExportedProgram]) -> ExportedProgram:
    try:
        return future.result(_DEADLINE_S)
    except TimeoutError:
        raise TrainingError(f"another thread's export has not ended within {_DEADLINE_S:.0f} s.") from None


def _made(pure: Pure) -> ExportedProgram:
    if not pure.outputs:
        return _NOTHING
    program = translate(pure)
    if (found := disagreement(pure, program)) is not None:
        raise UnexportableError(found)
    return program


def _key(pure: Pure) -> str:
    """The key of an export in the cache: the task's operations, and the versions of everything that translates them."""
    versions = (f"{name} {_version(name)}" for name in _PACKAGES)
    parts = [record(pure), f"kept {pure.kept}", f"format {_FORMAT}", *versions]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise ConfigError(
            f'dense tasks are exported with {package}, which is not installed: pip install "dorylus[functions]".'
        ) from error


def _explained(call: Call, make: Callable[[], ExportedProgram], torch_pools: Sequence[str]) -> ExportedProgram:
    try:
        return make()
    except (ConfigError, TrainingError):
        raise
    except Exception as error:  # any exception of a user's body or of a tracer
        raise refusal(call, error, torch_pools) from error


def record(pure: Pure) -> str:
    """The hash of every operation of the task, of all constants in it, and of its arrays' names."""
    lines = []
    for num_rows in _RECORDED_ROWS:
        arguments = pure.arguments(pure.example(num_rows))
        shapes = (
            f"{name} {tensor.dtype}{list(tensor.shape)}" for name, tensor in zip(pure.inputs, arguments, strict=True)
        )
        lines.append(f"inputs {', '.join(shapes)}")
        with _Recorder(arguments) as recorder:
            made = pure(*arguments)
        lines += [*recorder.lines, f"outputs {pure.outputs} {recorder.format(made)}"]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records every operation with its arguments: tensors by number, constants by content, the rest as text."""

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lines: list[str] = []
        self._numbers: dict[object, int] = {}
        self._alive: list[Tensor] = []  # numbers stand for addresses: keep the tensor, or its address is reused
        for tensor in arguments:
            self._number(tensor)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = self.format([args, dict(kwargs or {})])
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, Tensor):
                self._number(tensor)
        self.lines.append(f"{func} {given} -> {self.format(made)}")
        return made

    def format(self, value: object) -> str:
        """A value as text, the same at every recording of the task."""
        if isinstance(value, Tensor):
            number = self._numbers.get(place(value))
            return f"constant {self._content(value)}" if number is None else f"%{number}"
        if isinstance(value, tuple | list):
            return f"[{', '.join(map(self.format, value))}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{name}={self.format(each)}' for name, each in value.items())}}}"
        return repr(value)

    def _number(self, tensor: Tensor) -> None:
        self._alive.append(tensor)
        self._numbers.setdefault(place(tensor), len(self._numbers))

    def _content(self, tensor: Tensor) -> str:
        array = tensor.detach().contiguous().numpy()
        self._number(tensor)
        return f"{array.dtype}{list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()}"
