"""Optional packages: which extra of the package installs them, and one sentence that names it where one is missing."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from dorylus.errors import ConfigError, DataError

_PROGRAMS: Final = ("onnx", "onnxruntime", "onnxscript", "zmq")
FUNCTION_EXTRAS: Final = {  # the packages of each extra that brings functions, as they are imported
    "functions": _PROGRAMS,
    "lambda": (*_PROGRAMS, "boto3"),
    "local-functions": (*_PROGRAMS, "boto3", "awslambdaric", "ministack"),
}


def check_installed(asked: str, extra: str = "functions") -> None:
    """Refuse a request whose extra is not installed, before a model is blamed for it."""
    missing = [name for name in FUNCTION_EXTRAS[extra] if find_spec(name) is None]
    if missing:
        absent = f"{', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
        raise ConfigError(f'{asked} needs {absent}: pip install "dorylus[{extra}]".')


def optional(module: str, install: str) -> Any:
    """The module, or a DataError with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise DataError(
            f"this needs the package {module.split('.')[0]} ({error}). Install it with: {install}"
        ) from error
