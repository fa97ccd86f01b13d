"""Export of dense tasks: the program of a call, made once for all calls with its signature."""

import hashlib
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from importlib.metadata import PackageNotFoundError, version

from dorylus.errors import ConfigError, TrainingError
from dorylus.functions.agreement import disagreement
from dorylus.functions.program import Program
from dorylus.functions.program_cache import ProgramCache
from dorylus.functions.pure import Pure, signature
from dorylus.functions.recording import record
from dorylus.functions.translate import translate
from dorylus.functions.unexportable import ExportError, UnexportableError, refusal
from dorylus.saga.dense import Call

__all__ = ["ExportError", "Exports", "export", "signature"]

_FORMAT = 3  # raise it when programs are made differently: those on disk are then made again
_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime")
_DEADLINE_S = 300.0
_NOTHING = Program.of(b"", (), ())


def export(call: Call) -> Program:
    """The program of a call, made now and checked against torch. ExportError if there can be none."""
    return _explained(call, lambda: _made(Pure(call)))


class Exports:
    """The programs of a run: each is made at most once, by whichever thread asks first; the others wait for it.

    A program made in an earlier run is taken from ``cache``; None keeps nothing on disk.
    """

    def __init__(self, cache: ProgramCache | None = None) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._programs: dict[Hashable, Future[Program]] = {}
        self.num_made = 0

    def program(self, call: Call) -> Program:
        """The program for a call and for all like it. Without outputs, there is nothing to run."""
        return self._once(signature(call), lambda: _explained(call, lambda: self._found(call)))

    def _found(self, call: Call) -> Program:
        pure = Pure(call)
        key = _key(pure)
        # Bodies of other plans (evaluation's, say) may run the same operations: one program serves them all.
        return self._once(key, lambda: self._from_disk(pure, key))

    def _from_disk(self, pure: Pure, key: str) -> Program:
        found = None if self._cache is None else self._cache.get(key)
        if found is not None:
            return found
        program = _made(pure)
        with self._lock:
            self.num_made += 1
        if self._cache is not None:
            self._cache.put(key, program)
        return program

    def _once(self, name: Hashable, make: Callable[[], Program]) -> Program:
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


def _waited(future: Future[Program]) -> Program:
    try:
        return future.result(_DEADLINE_S)
    except TimeoutError:
        raise TrainingError(f"another thread's export has not ended within {_DEADLINE_S:.0f} s.") from None


def _made(pure: Pure) -> Program:
    if not pure.outputs:
        return _NOTHING
    program = translate(pure)
    if (found := disagreement(pure, program)) is not None:
        raise UnexportableError(found)
    return program


def _key(pure: Pure) -> str:
    """What a finished export is found by: the operations of the task, and all that has a part in the translation."""
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


def _explained(call: Call, make: Callable[[], Program]) -> Program:
    try:
        return make()
    except (ConfigError, TrainingError):
        raise
    except Exception as error:  # whatever a user's body or a tracer raises
        raise refusal(call, error) from error
