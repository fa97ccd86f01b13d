"""Packages that dorylus needs, and optional ones: which of them does not load, and which extra installs one."""

import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from signal import Signals
from typing import Any, Final

from dorylus.errors import ConfigError, DataError

_PROGRAMS: Final = ("onnx", "onnxruntime", "onnxscript", "zmq")
EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {  # the packages of each extra, by the names they are imported by
    "parquet": ("pyarrow",),
    "tables": ("pyarrow",),
    "pyg": ("torch_geometric",),
    "networkx": ("networkx",),
    "ogb": ("ogb",),
    "metis": ("pymetis",),
    "functions": _PROGRAMS,
    "lambda": (*_PROGRAMS, "boto3"),
    "local-functions": (*_PROGRAMS, "boto3", "awslambdaric", "ministack"),
    "http": (*_PROGRAMS, "uvicorn"),
    "ray": ("ray", "zmq"),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "wandb": ("wandb",),
}

CORE: Final = ("numpy", "scipy", "safetensors", "tomli_w", "rich", "typer", "torch")  # every install has these
_KERNELS: Final = "the compiled kernels"
_IMPORTS: Final = f"""
import importlib, sys
for name in sys.argv[1:]:
    print(name, flush=True)
    importlib.import_module(name)
print({_KERNELS!r}, flush=True)
from dorylus.backends import native
"""
_IMPORT_S: Final = 300.0


def broken_package() -> tuple[str, str] | None:
    """What is wrong with the first needed package that does not load, and the cure; None if all load.

    They are imported in a child process, because a damaged library may end the process that loads it.
    """
    command = [sys.executable, "-P", "-c", _IMPORTS, *CORE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_IMPORT_S, check=False)
    except subprocess.TimeoutExpired as late:
        tried, code = (late.stdout or b"").decode(), None
        why = f"it takes more than {_IMPORT_S:g} s"
    else:
        tried, code = done.stdout, done.returncode
        why = f"dies of {Signals(-code).name}" if code < 0 else (done.stderr.splitlines() or ["no reason given"])[-1]
    if code == 0:
        return None
    name = (tried.splitlines() or [CORE[0]])[-1]
    verb, package = ("do", "dorylus") if name == _KERNELS else ("does", name)
    return (
        f"{name} {verb} not load: {why}",
        f"install {package} again: pip install --force-reinstall --no-deps {package}",
    )


def check_installed(what: str, extra: str) -> None:
    """Refuse ``what`` (a setting, or a thing to be done) where a package of its extra is not installed."""
    missing = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if missing:
        absent = f"{', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
        raise ConfigError(f'{what} needs {absent}: pip install "dorylus[{extra}]".')


def optional(module: str, install: str) -> Any:
    """The module, or a DataError with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise DataError(
            f"this needs the package {module.split('.')[0]} ({error}). Install it with: {install}"
        ) from error
