"""Dense tasks as programs that run without torch: their export, and what runs inside a function."""

from importlib.util import find_spec
from typing import Final

from dorylus.errors import ConfigError

_PROGRAMS: Final = ("onnx", "onnxruntime", "onnxscript", "zmq")
EXTRAS: Final = {  # the packages of each extra that brings functions, as they are imported
    "functions": _PROGRAMS,
    "lambda": (*_PROGRAMS, "boto3"),
    "local-functions": (*_PROGRAMS, "boto3", "awslambdaric", "ministack"),
}


def check_installed(asked: str, extra: str = "functions") -> None:
    """Refuse what was asked for where packages of its extra are missing, before a model is blamed for it."""
    missing = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if missing:
        absent = f"{', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
        raise ConfigError(f'{asked} needs {absent}: pip install "dorylus[{extra}]".')
