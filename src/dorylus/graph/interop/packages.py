"""Importing an optional package, with the command that installs it when it is absent."""

from importlib import import_module
from typing import Any

from dorylus.errors import DataError


def optional(module: str, install: str) -> Any:
    """The module, or a DataError that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise DataError(
            f"this needs the package {module.split('.')[0]} ({error}). Install it with: {install}"
        ) from error
