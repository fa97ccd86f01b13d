"""The names of the source tree: few modules, each class name once, packages that export what they say, plain words."""

import ast
import importlib
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "dorylus"
MODULES = sorted(SOURCE.rglob("*.py"))
PACKAGES = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
MOST_MODULES = 280

# Names that no engineer of the field would search for; docs use the terms that replaced them.
REPLACED = {
    "Crew", "Site", "Station", "Fleet", "Running", "Ears", "Made", "Bench", "Arrangement", "Cut", "Holding",
    "Residency", "touches", "Mover", "Window", "Asked", "Way", "Wanted", "shown", "taking", "judging",
    "verdict", "judge", "permitted", "Keeper", "Parcel", "mail", "Line", "doorman", "Doorman", "intake",
    "Intake", "Elsewhere", "Neighbourhood", "Outbox", "Deed", "errand", "Errand", "Walk", "late_bar",
    "in_flags", "setting_up",
}  # fmt: skip


def defined_names(tree: ast.Module) -> list[str]:
    """The classes and functions of a module."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [node.name for node in tree.body if isinstance(node, kinds)]


def test_a_reader_has_to_find_their_way_among_few_modules():
    assert len(MODULES) <= MOST_MODULES


def test_no_class_name_is_used_twice():
    homes = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_replaced_names_do_not_come_back(path):
    names = {path.stem, *defined_names(ast.parse(path.read_text()))}
    assert names & REPLACED == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_exports_what_it_lists(package):
    module = importlib.import_module(f"dorylus.{package}")
    for name in getattr(module, "__all__", ()):
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_names_for_type_checkers_are_those_that_are_loaded(package):
    tree = ast.parse((SOURCE / package / "__init__.py").read_text())
    listed = getattr(importlib.import_module(f"dorylus.{package}"), "__all__", None)
    blocks = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    for block in blocks:
        imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
        assert listed is not None
        assert sorted(alias.name for node in imports for alias in node.names) == sorted(listed)
        for node in imports:
            for alias in node.names:
                home = importlib.import_module(str(node.module))
                assert getattr(importlib.import_module(f"dorylus.{package}"), alias.name) is getattr(home, alias.name)
