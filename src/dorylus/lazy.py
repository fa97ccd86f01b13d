"""Packages whose names are imported at first use, so that settings and help texts never load torch."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, names_of: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package. ``names_of``: the public names of each of its modules, separated by spaces.

    Those of ``"."`` are modules themselves.
    """
    home_of = {name: module for module, names in names_of.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home_of[name] == ".":
            return import_module(f"{package}.{name}")
        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    return get
