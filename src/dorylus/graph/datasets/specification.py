"""Generators by text: "communities:num_vertices=10000,seed=1" calls communities(num_vertices=10000, seed=1)."""

import ast
import inspect
from collections.abc import Callable
from typing import Any

from dorylus.errors import DataError, unknown_name
from dorylus.graph.generators import communities, ring, rmat
from dorylus.graph.graph import Graph

GENERATORS: dict[str, Callable[..., Graph]] = {"communities": communities, "ring": ring, "rmat": rmat}


def generate(name: str, arguments: str, options: dict[str, Any]) -> Graph:
    """The graph of generator ``name`` with the arguments of the text and those of ``options``."""
    known = inspect.signature(GENERATORS[name]).parameters
    values = {**_parse(name, arguments), **options}
    for key in values:
        if key not in known:
            raise DataError(unknown_name(f"argument of {name}", key, known))
        values[key] = _of_its_kind(name, known[key], values[key])
    try:
        return GENERATORS[name](**values)
    except (IndexError, TypeError, ValueError, OverflowError, MemoryError) as error:  # of the wrong kind or size
        given = ", ".join(f"{key}={value!r}" for key, value in values.items())
        raise DataError(
            f"{name} cannot be made with {given}: {error}. Use whole numbers that fit in memory."
        ) from error


def _of_its_kind(name: str, parameter: inspect.Parameter, value: Any) -> Any:
    """The value; a whole number where the generator counts with it."""
    kind = str(parameter.annotation)
    if "int" not in kind or "float" in kind or "tuple" in kind.lower() or value is None:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int):
        raise DataError(
            f"{parameter.name}={value!r} of {name}, but {parameter.name} is a whole number: give it as one."
        )
    return value


def _parse(name: str, arguments: str) -> dict[str, Any]:
    """The key=value pairs of the text; a value is a number, true, false or a tuple of numbers."""
    if not arguments.strip():
        return {}
    try:
        call = ast.parse(f"f({arguments})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError("an argument has no name")
        return {str(keyword.arg): _value(keyword.value) for keyword in call.keywords}
    except (AssertionError, SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise DataError(
            f"cannot read {name}:{arguments}. Write the arguments as name=number, separated by commas, for example "
            f"{name}:num_vertices=10000,seed=1."
        ) from error


def _value(node: ast.expr) -> Any:
    """A literal; true and false may be spelt as TOML and the command line have them."""
    if isinstance(node, ast.Name) and node.id in ("true", "false"):
        return node.id == "true"
    return ast.literal_eval(node)
