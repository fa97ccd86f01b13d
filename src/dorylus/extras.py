"""Optional packages: which extra of dorylus installs them, and the error that names the extra where one is missing."""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
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
