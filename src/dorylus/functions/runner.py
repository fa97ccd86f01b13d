"""Runs programs with ONNX Runtime: sessions are cached, and all inputs are checked, because they are not trusted.

This file is shipped inside functions: numpy and onnxruntime only.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import ConfigError
from dorylus.functions.program import ProgramError, content_hash, is_cut_by_row, is_summed
from dorylus.wire import DEFAULT

Arrays = Mapping[str, NDArray[Any]]

_DTYPES: Mapping[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(double)": np.dtype(np.float64),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(bool)": np.dtype(np.bool_),
}


_MOST_ENTRIES = DEFAULT.max_frame_bytes // 4  # of a row, or of an array without rows: the float32 of a frame
_SWITCH = "ORT_DISABLE_TELEMETRY"


@dataclass(frozen=True)
class Spec:
    """The type and shape that a program requires of an array; None for the number of rows."""

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        shape = ", ".join("rows" if size is None else str(size) for size in self.shape)
        return f"{self.dtype}[{shape}]"

    def fits(self, array: NDArray[Any]) -> bool:
        """Whether the array is of this type and shape, with any number of rows."""
        if array.dtype != self.dtype or array.ndim != len(self.shape):
            return False
        return all(size in (None, found) for size, found in zip(self.shape, array.shape, strict=True))

    def zeros(self, num_rows: int) -> NDArray[Any]:
        """Such an array, of zeros."""
        return np.zeros([num_rows if size is None else size for size in self.shape], self.dtype)


@dataclass(frozen=True)
class Loaded:
    """A program that is ready to run."""

    hash: str
    inputs: Mapping[str, Spec]
    outputs: Mapping[str, Spec]
    compute: Callable[[list[str], dict[str, Any]], list[NDArray[Any]]]

    @property
    def shapes(self) -> Mapping[str, tuple[int | None, ...]]:
        """The shapes of its inputs, None for the number of rows."""
        return {name: spec.shape for name, spec in self.inputs.items()}


class Runner:
    """Keeps the programs that ran last ready to run: making a program ready takes longer than most tasks.

    Each computes on one thread, the caller's; several threads may run programs concurrently.
    """

    def __init__(self, max_programs: int = 64) -> None:
        self._runtime = _onnxruntime()
        self._max_programs = max_programs
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, program_hash: str) -> bool:
        """Whether the program is loaded, which it must be before it is run."""
        with self._lock:
            return program_hash in self._loaded

    def load(self, program_hash: str, content: bytes) -> None:
        """Load a program, whose content must match its hash. The least recently used one is dropped."""
        if self.known(program_hash):
            return
        found = content_hash(content)
        if found != program_hash:
            raise ProgramError(f"program {program_hash[:12]} was requested, but what came is {found[:12]}: not run.")
        loaded = _load(self._runtime, program_hash, content)
        with self._lock:
            self._loaded[program_hash] = loaded
            while len(self._loaded) > self._max_programs:
                self._loaded.popitem(last=False)

    def loaded(self, program_hash: str) -> Loaded:
        """A loaded program: its inputs and outputs."""
        with self._lock:
            if program_hash not in self._loaded:
                raise ProgramError(f"program {program_hash[:12]} is not loaded: load its content before it is run.")
            self._loaded.move_to_end(program_hash)
            return self._loaded[program_hash]

    def run(self, program_hash: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """The outputs for all rows at once; zero rows give empty rows and zero sums, for any program."""
        program = self.loaded(program_hash)
        num_rows = _checked(program, arrays)
        if num_rows == 0:  # a body may fail without rows: many divide by their number
            return {name: spec.zeros(0) for name, spec in program.outputs.items()}
        names = list(program.outputs)
        try:
            made = program.compute(names, dict(arrays))
        except Exception as error:  # the runtime's exceptions have no common class
            raise ProgramError(f"program {program.hash[:12]} failed on {num_rows} rows: {error}") from error
        return dict(zip(names, made, strict=True))

    def run_in_parts(self, program_hash: str, arrays: Arrays, part_rows: int) -> dict[str, NDArray[Any]]:
        """The same outputs, computed at most ``part_rows`` rows at a time, so that memory stays bounded."""
        program = self.loaded(program_hash)
        num_rows = _checked(program, arrays)
        whole = Whole(program, num_rows)
        for part in parts_of(arrays, num_rows, part_rows):
            whole.add(self.run(program_hash, part))
        return whole.arrays


class Whole:
    """The outputs of a task from those of its parts: rows one after the other, sums added up.

    Use ``num_rows=None`` where each part's rows are sent on immediately: then only the sums are kept.
    """

    def __init__(self, program: Loaded, num_rows: int | None) -> None:
        kept = (name for name in program.outputs if num_rows is not None or is_summed(name))
        self.arrays = {name: program.outputs[name].zeros(num_rows or 0) for name in kept}
        self._at = 0

    def add(self, part: Arrays) -> None:
        """Add the next part."""
        num_rows = 0
        for name, array in self.arrays.items():
            if is_summed(name):
                array += part[name]
            else:
                num_rows = len(part[name])
                array[self._at : self._at + num_rows] = part[name]
        self._at += num_rows


def parts_of(arrays: Arrays, num_rows: int, part_rows: int) -> Iterator[dict[str, NDArray[Any]]]:
    """The arrays of each part of a task: rows are cut, the rest stays whole. Nothing is copied."""
    if part_rows < 1:
        raise ProgramError(f"parts of {part_rows} rows: a part has at least one.")
    for begin in range(0, num_rows, part_rows):
        rows = slice(begin, begin + part_rows)
        yield {name: array[rows] if is_cut_by_row(name) else array for name, array in arrays.items()}


def _checked(program: Loaded, arrays: Arrays) -> int:
    """The number of rows; refuses arrays other than those that the program takes."""
    if arrays.keys() != program.inputs.keys():
        raise ProgramError(
            f"program {program.hash[:12]} takes {_list(program.inputs)}, but was given {_list(arrays)}: give those."
        )
    counts = set()
    for name, spec in program.inputs.items():
        if not spec.fits(arrays[name]):
            found = f"{arrays[name].dtype}{list(arrays[name].shape)}"
            raise ProgramError(f"program {program.hash[:12]} takes {name} as {spec}, but was given {found}.")
        if None in spec.shape:
            counts.add(arrays[name].shape[spec.shape.index(None)])
    if len(counts) > 1:
        raise ProgramError(f"arrays of {sorted(counts)} rows were given: all that are cut by row have as many rows.")
    return counts.pop() if counts else 1


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _load(runtime: Any, program_hash: str, content: bytes) -> Loaded:
    try:
        session = runtime.InferenceSession(content, _options(runtime), providers=["CPUExecutionProvider"])
        inputs, outputs = _specs(session.get_inputs()), _specs(session.get_outputs())
    except ProgramError:
        raise
    except Exception as error:  # the runtime's exceptions have no common class
        raise ProgramError(f"program {program_hash[:12]} cannot be loaded: {error}") from error
    silent = runtime.RunOptions()
    silent.log_severity_level = 4

    def compute(names: list[str], arrays: dict[str, Any]) -> list[NDArray[Any]]:
        made: list[NDArray[Any]] = session.run(names, arrays, silent)
        return made

    return Loaded(program_hash, inputs, outputs, compute)


def _specs(arguments: Iterable[Any]) -> dict[str, Spec]:
    specs = {}
    for each in arguments:
        if each.type not in _DTYPES:
            raise ProgramError(f"{each.name} is a {each.type}, a type that no program of Dorylus has.")
        shape = tuple(size if isinstance(size, int) else None for size in each.shape)
        rows = int(is_cut_by_row(each.name))
        if None in shape[rows:] or shape[:rows] != (None,) * rows:
            raise ProgramError(f"{each.name} has the shape {list(each.shape)}: only the number of rows may vary.")
        fixed = [size for size in shape if size is not None]
        if min(fixed, default=0) < 0 or prod(fixed) > _MOST_ENTRIES:
            raise ProgramError(f"{each.name} has the shape {list(each.shape)}: more than a frame can hold.")
        specs[each.name] = Spec(_DTYPES[each.type], shape)
    return specs


def _options(runtime: Any) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
    options.use_deterministic_compute = True
    options.log_severity_level = 4
    # Parts differ in size: a memory plan made for one would be kept, and an arena never shrinks.
    options.enable_mem_pattern = options.enable_cpu_mem_arena = False
    return options


def _onnxruntime() -> Any:
    """ONNX Runtime with its telemetry off, which it reads once, when it is loaded."""
    found = os.environ.get(_SWITCH)
    os.environ[_SWITCH] = "1"
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigError(
            'programs run on onnxruntime, which is not installed: pip install "dorylus[functions]".'
        ) from error
    finally:
        if found is None:
            del os.environ[_SWITCH]
        else:
            os.environ[_SWITCH] = found
    onnxruntime.disable_telemetry_events()  # where it was loaded before, this switches most of them off
    return onnxruntime
