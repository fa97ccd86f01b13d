"""The names of the source tree: few modules, each class name once, packages that export what they say, plain words."""

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dorylus"
BESIDE = sorted(path for each in ("tests", "benchmarks", "examples", "tools") for path in (ROOT / each).rglob("*.py"))
MODULES = sorted(SOURCE.rglob("*.py"))
PACKAGES = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
MOST_MODULES = 280

# Names that no engineer of the field would search for, in any spelling; docs use the terms that replaced them.
REPLACED = {
    "crew", "site", "station", "fleet", "ears", "bench", "arrangement", "holding", "residency", "touches", "mover",
    "asked", "way", "wanted", "shown", "taking", "judging", "judged", "verdict", "judge", "permitted", "keeper",
    "parcel", "mail", "doorman", "intake", "elsewhere", "neighbourhood", "outbox", "deed", "errand", "walk", "said",
    "late_bar", "in_flags", "setting_up",
}  # fmt: skip
# Replaced as names of classes only. In lower case they are ordinary names: a line of text, a partition's cut.
REPLACED_CLASSES = {"Cut", "Line", "Made", "Running", "Window"}
STANDARD_LIBRARY = {"ast.walk", "os.walk"}
# MemoryPlan.verdict is public and documented: the package that has it, the command that prints it, and what is beside
# the package may name it.
PUBLIC = {(folder, "verdict") for folder in ("memory", "cli", "tests", "benchmarks")}


def names_in(tree: ast.Module) -> Iterator[str]:
    """Every name of a class, function, parameter, attribute or variable, defined or used, at any depth."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Attribute(attr=name) if ast.unparse(node) not in STANDARD_LIBRARY:
                yield name
            case ast.alias(name=name, asname=other):
                yield from filter(None, (*name.split("."), other))
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name


def replaced_names(path: Path, source: str) -> set[str]:
    """The replaced names in a module; ``path`` is relative to the package."""
    found = set()
    for name in (path.stem, *names_in(ast.parse(source))):
        word = name.strip("_")
        is_replaced = word.lower() in REPLACED or word in REPLACED_CLASSES
        if is_replaced and (path.parts[0], word) not in PUBLIC:
            found.add(name)
    return found


def test_a_reader_has_to_find_their_way_among_few_modules():
    assert len(MODULES) <= MOST_MODULES


def types_in(tree):
    """The names of a module's classes and of its type aliases, without the underscores that make them private."""
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assigned = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None]
    targets = [(node.targets[0] if isinstance(node, ast.Assign) else node.target, node.value) for node in assigned]
    aliases = [
        target.id
        for target, value in targets
        if isinstance(target, ast.Name)
        and re.fullmatch(r"_*[A-Z]\w*[a-z]\w*", target.id)  # as a class is written
        and (isinstance(value, ast.Subscript | ast.BinOp | ast.Attribute | ast.Name) or makes_type(value))
        and not ast.unparse(value).startswith("Annotated")  # a flag of a command
    ]
    return [name.strip("_") for name in classes], [name.strip("_") for name in aliases]


def makes_type(value):
    """Whether a value is a call such as NamedTuple("Part", ...)."""
    makers = {"NamedTuple", "namedtuple", "NewType", "TypedDict", "Enum", "make_dataclass", "type"}
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in makers


def used_twice(sources):
    """The names of classes that another class, or a type alias, has too; by name, the modules."""
    homes, classes = defaultdict(list), set()
    for path, source in sources.items():
        own, aliases = types_in(ast.parse(source))
        classes |= set(own)
        for name in own + aliases:
            homes[name].append(path)
    return {name: paths for name, paths in homes.items() if len(paths) > 1 and name in classes}


def test_no_class_name_is_used_twice_nor_that_of_a_type_alias():
    assert used_twice({str(path.relative_to(SOURCE)): path.read_text() for path in MODULES}) == {}


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("class Part: ...", "class Part: ...", {"Part": ["a", "b"]}),
        ("class Part: ...", "class _Part: ...", {"Part": ["a", "b"]}),
        ("class Part: ...", "def f():\n    class Part: ...", {"Part": ["a", "b"]}),
        ("class _Part: ...", "Part = tuple[int, int]", {"Part": ["a", "b"]}),
        ("class Part: ...", "Part: TypeAlias = 'int | str'", {}),
        ("class Part: ...", "Part: TypeAlias = int | str", {"Part": ["a", "b"]}),
        ("class Part: ...", "Part = typing.NamedTuple('Part', [('a', int)])", {"Part": ["a", "b"]}),
        ("class Part: ...", "Part = NewType('Part', int)", {"Part": ["a", "b"]}),
        ("Part = int | str", "Part = list[int]", {}),
        ("class Part: ...", "part = parts[0]\nPART = parts[1]", {}),
    ],
)
def test_the_check_itself_finds_names_used_twice(first, second, found):
    assert used_twice({"a": first, "b": second}) == found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_replaced_names_do_not_come_back(path):
    assert replaced_names(path.relative_to(SOURCE), path.read_text()) == set()


@pytest.mark.parametrize("path", BESIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_nor_do_they_beside_the_package(path):
    assert replaced_names(path.relative_to(ROOT), path.read_text()) == set()


@pytest.mark.parametrize(
    ("path", "source", "name"),
    [
        ("pools/pool.py", "class Crew: ...", "Crew"),
        ("pools/pool.py", "class Pool:\n    class _Line: ...", "_Line"),
        ("pools/pool.py", "class Pool:\n    def verdict(self): ...", "verdict"),
        ("pools/pool.py", "def f():\n    def judge(): ...", "judge"),
        ("pools/pool.py", "def f(*, _asked=None): ...", "_asked"),
        ("pools/pool.py", "async def f():\n    return lambda parcel: 0", "parcel"),
        ("pools/pool.py", 'ASKED = "ray"', "ASKED"),
        ("pools/pool.py", "def f(self):\n    self._permitted = 0", "_permitted"),
        ("pools/pool.py", "class Pool:\n    wanted: int = 0", "wanted"),
        ("pools/pool.py", "f(taking=1)", "taking"),
        ("pools/pool.py", "import dorylus.pools.intake", "intake"),
        ("pools/pool.py", "from dorylus.pools import Queue as Outbox", "Outbox"),
        ("pools/pool.py", "try: ...\nexcept OSError as said: ...", "said"),
        ("pools/pool.py", "match x:\n    case {**mail}: ...", "mail"),
        ("pools/pool.py", "graph.walk()", "walk"),
        ("pools/doorman.py", "", "doorman"),
    ],
)
def test_the_check_itself_finds_replaced_names(path, source, name):
    assert replaced_names(Path(path), source) == {name}


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("graph/store.py", "import os\nfor folder in os.walk(root): ..."),
        ("memory/limit.py", "class MemoryPlan:\n    def verdict(self): ..."),
        ("ingest/text.py", "line, cut, made, window = f(running=1)"),
        ("ingest/text.py", "outline = deadline = runway = 0  # asked"),
    ],
)
def test_the_check_itself_accepts_other_names(path, source):
    assert replaced_names(Path(path), source) == set()


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
