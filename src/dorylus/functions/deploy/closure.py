"""Which of our modules the function needs: those its entry point imports, and those these import, and so on.

Found by reading the sources, so that imports inside functions count, too; those for type checkers do not.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ENTRY: Final = "dorylus.functions.aws_lambda"
_OURS: Final = "dorylus"
_ROOT: Final = Path(__file__).parents[2]


def modules_of(entry: str = ENTRY) -> dict[str, Path]:
    """The modules of ours that a module needs, by name, with their files."""
    found: dict[str, Path] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name in found or (path := _file_of(name)) is None:
            continue
        found[name] = path
        waiting += [name.rpartition(".")[0], *(each for each in imports_of(name) if each.split(".")[0] == _OURS)]
    return dict(sorted(found.items()))


def packages_of(entry: str = ENTRY) -> set[str]:
    """The top-level packages, not ours, that those modules import; the standard library's among them."""
    return {name.split(".")[0] for module in modules_of(entry) for name in imports_of(module)} - {_OURS}


def imports_of(module: str) -> list[str]:
    """All that a module's source imports by name; what may be a module or a name within one is given both ways."""
    path = _file_of(module)
    assert path is not None
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names: list[str] = []
    for node in _statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(node, package)
            names += [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
    return names


def _origin(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    above = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*above, *filter(None, [node.module])])


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below a node, but for what only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield other
                yield from _statements(other)
        else:
            yield child
            yield from _statements(child)


def _file_of(name: str) -> Path | None:
    """The file of a module of ours; None if there is no such module."""
    below = name.split(".")
    if below[0] != _OURS:
        return None
    place = _ROOT.joinpath(*below[1:])
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
