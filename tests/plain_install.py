"""Dorylus as ``pip install dorylus`` leaves it, without extras: the packages that only extras bring cannot be imported.

A program of its own, because modules that are loaded cannot be hidden again. It runs the commands of a JSON list on
standard input in the working folder, and writes exit code, stdout and stderr of each as a JSON list.
"""

import contextlib
import io
import json
import re
import sys
import traceback
from importlib import metadata
from importlib.machinery import ModuleSpec
from typing import Any

_TOOLS = {"pip", "pkg_resources", "_distutils_hack"}


def required(distribution: str) -> set[str]:
    """The distributions that come with one without extras, itself among them."""
    found: set[str] = set()
    waiting = [_normal(distribution)]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        with contextlib.suppress(metadata.PackageNotFoundError):  # for another system
            lines = metadata.distribution(name).requires or []
            waiting += [_normal(re.split(r"[^\w.-]", line)[0]) for line in lines if "extra ==" not in line]
    return found


def hidden() -> set[str]:
    """The top-level modules of this environment that a plain install does not have."""
    there = required("dorylus")
    modules = metadata.packages_distributions().items()
    return {name for name, homes in modules if there.isdisjoint(map(_normal, homes))} - _TOOLS


class Without:
    """A finder of modules that finds all but some."""

    def __init__(self, finder: Any, names: set[str]) -> None:
        self._finder, self._names = finder, names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """None for a module that is hidden: as if it were not installed."""
        if name.split(".")[0] in self._names:
            return None
        spec: ModuleSpec | None = self._finder.find_spec(name, path, target)
        return spec


def run(arguments: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command; a traceback is part of stderr."""
    from dorylus.cli import main

    out, err = io.StringIO(), io.StringIO()
    code = 99
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        except Exception:
            traceback.print_exc()
    return code, out.getvalue(), err.getvalue()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    names = hidden()
    assert {"zmq", "onnx", "pyarrow"} <= names, "the environment has no extras to hide"
    sys.meta_path[:] = [Without(finder, names) for finder in sys.meta_path]
    commands: list[list[str]] = json.load(sys.stdin)
    json.dump([run(each) for each in commands], sys.stdout)
