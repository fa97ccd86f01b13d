"""``load``: a graph by data set name, generator specification or path.

A generator specification is text: "communities:num_vertices=10000,seed=1".
"""

import ast
import inspect
from collections.abc import Callable
from os import PathLike, sep
from pathlib import Path
from typing import Any

import numpy as np

from dorylus.errors import DataError, unknown_name
from dorylus.files import check_is_path
from dorylus.graph import store
from dorylus.graph.datasets import npz, planetoid
from dorylus.graph.generators.random_graphs import communities, ring, rmat
from dorylus.graph.graph import Graph
from dorylus.graph.locations import is_remote

GENERATORS: dict[str, Callable[..., Graph]] = {"communities": communities, "ring": ring, "rmat": rmat}


def generate(name: str, arguments: str, options: dict[str, Any]) -> Graph:
    """The graph of generator ``name`` with the arguments of the text and those of ``options``."""
    known = inspect.signature(GENERATORS[name]).parameters
    values = {**_parse(name, arguments), **options}
    for key in values:
        if key not in known:
            raise DataError(unknown_name(f"argument of {name}", key, known))
        values[key] = _as_parameter(name, known[key], values[key])
    try:
        return GENERATORS[name](**values)
    except (
        IndexError,
        TypeError,
        ValueError,
        OverflowError,
        MemoryError,
    ) as error:  # a value of the wrong type or size
        given = ", ".join(f"{key}={value!r}" for key, value in values.items())
        raise DataError(
            f"{name} cannot be made with {given}: {error}. Use whole numbers that fit in memory."
        ) from error


def _as_parameter(name: str, parameter: inspect.Parameter, value: Any) -> Any:
    """The value, as an int where the parameter is one."""
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
    """A literal; true and false may be lower-case, as in TOML and on the command line."""
    if isinstance(node, ast.Name) and node.id in ("true", "false"):
        return node.id == "true"
    return ast.literal_eval(node)


OGB_NAMES = ("ogbn-arxiv", "ogbn-papers100M", "ogbn-products", "ogbn-proteins")
PATH_HINT = "a path to a store folder, an .npz file or a text edge list"


def load(
    name_or_path: str | PathLike[str],
    *,
    root: str | PathLike[str] | None = None,
    download: bool = True,
    **options: Any,
) -> Graph:
    """The graph called ``name_or_path``: a data set's name, a generator, a store folder, or a file.

    - "cora", "citeseer", "pubmed"; "amazon-computers", "amazon-photo", "coauthor-cs", "coauthor-physics"; "ogbn-...":
      read from ``root`` (default ~/.cache/dorylus), downloaded first if absent and ``download`` is true;
    - "communities", "rmat", "ring", also with arguments: "communities:num_vertices=10000,seed=1";
    - a store folder, also by an fsspec address ("s3://bucket/graph"), an .npz file, or a text edge list with one edge
      per line.

    A known name takes precedence over a file of the same name: write "./cora" for the file. ``options`` go to the
    reader: split and seed (.npz), directed and num_vertices (edge lists), verify (stores), a generator's arguments.
    """
    check_is_path("name_or_path", name_or_path, "cora")
    if isinstance(name_or_path, str):
        reader = _named(name_or_path, root, download)
        if reader is not None:
            return _call(reader, name_or_path, options)
    if is_remote(name_or_path):
        return _call(lambda **options: store.open_store(name_or_path, **options), str(name_or_path), options)
    path = Path(name_or_path).expanduser()
    if not path.exists():
        raise DataError(_unknown(str(name_or_path)))
    return _call(_file_reader(path), str(path), options)


def known_names() -> list[str]:
    """Every name that ``load`` knows, sorted."""
    return sorted([*planetoid.NAMES, *npz.ADDRESSES, *OGB_NAMES, *GENERATORS])


def _named(text: str, root: str | PathLike[str] | None, download: bool) -> Callable[..., Graph] | None:
    """The reader of a known name or generator; None for anything else."""
    generator, _, arguments = text.partition(":")
    if generator in GENERATORS:
        return lambda **options: generate(generator, arguments, options)
    name = text.lower().replace("_", "-")
    if name in planetoid.NAMES:
        return lambda **options: planetoid.load(name, root=root, download=download, **options)
    if name in npz.ADDRESSES:
        return lambda **options: npz.load_named(name, root=root, download=download, **options)
    for known in OGB_NAMES:
        if name == known.lower():
            return lambda **options: Graph.from_ogb(known, root=root, download=download, **options)
    return None


def _file_reader(path: Path) -> Callable[..., Graph]:
    if path.is_dir():
        return lambda **options: store.open_store(path, **options)
    if path.suffix == ".npz":
        return lambda **options: npz.load(path, **options)
    return lambda **options: load_edge_list(path, **options)


def _call(reader: Callable[..., Graph], what: str, options: dict[str, Any]) -> Graph:
    try:
        return reader(**options)
    except TypeError as error:
        if "unexpected keyword argument" in str(error):
            raise DataError(
                f"load({what!r}): {str(error).partition(') ')[2] or error}. Leave that option out."
            ) from error
        raise


def _unknown(text: str) -> str:
    if sep in text or Path(text).suffix:
        return f"there is no file or folder {text}. Give {PATH_HINT}, or one of the names {', '.join(known_names())}."
    return f"{unknown_name('data set', text, known_names())} Or give {PATH_HINT}."


def load_edge_list(
    path: str | PathLike[str],
    *,
    directed: bool = False,
    num_vertices: int | None = None,
    skip_lines: int = 0,
    name: str | None = None,
) -> Graph:
    """The graph of a text edge list with one edge per line: two vertex numbers and an optional weight.

    Numbers are separated by blanks, tabs or commas; # and % start comments; a header is skipped. Files that end in .gz,
    .bz2, .zst or .lz4 are decompressed. An undirected graph (the default) gets the reverse of every edge.
    """
    from dorylus.ingest import open_edges

    edges = open_edges(path, format="text", ids="dense", skip_lines=skip_lines)
    sources, destinations, weights, *_ = zip(*edges, strict=True)
    return Graph.from_edges(
        np.concatenate(sources),
        np.concatenate(destinations),
        num_vertices,
        undirected=not directed,
        edge_weight=np.concatenate(weights) if edges.weighted else None,
        name=name or Path(path).name.split(".")[0],
    )
