"""Imports point one way, heavy and optional packages are imported where they belong."""

import ast
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

TESTS = Path(__file__).parents[1]
SOURCE = Path(__file__).parents[2] / "src" / "dorylus"

# From the bottom to the top: a package imports those above it in this list, and no other.
LAYERS = (
    "errors", "lazy", "units", "files", "extras", "progress", "process_memory", "settings",
    "pipeline", "wire", "cost", "backends", "paging", "graph", "ingest", "partition", "saga",
    "functions", "pools", "servers", "memory", "runtime", "config", "runs", "report", "training", "inference", "cli",
)  # fmt: skip
MAY_IMPORT = {name: set(LAYERS[:place]) for place, name in enumerate(LAYERS)}
MAY_IMPORT["pipeline"] = {"errors"}
MAY_IMPORT["wire"] = {"errors", "lazy"}
MAY_IMPORT["report"] = {"errors", "lazy", "units", "progress", "cost", "pools", "runs"}
MAY_IMPORT["servers"] -= {"functions", "pools"}
MAY_IMPORT["config"].add("pools")  # the registry of pools, whose names are the values of a setting
MAY_IMPORT["graph"].add("ingest")  # Graph.ingest, a shortcut for ingest_edges
MAY_IMPORT["inference"] -= {"report"}
MAY_IMPORT["training"].add("inference")  # Result.predict, a shortcut for predict
MAY_IMPORT["cli"].add("dorylus")  # the command line is a thin layer over the Python interface

WITHOUT_TORCH = {
    "errors", "lazy", "units", "files", "extras", "progress", "process_memory", "settings",
    "pipeline", "wire", "cost", "backends", "paging", "graph", "ingest", "partition", "report",
}  # fmt: skip
TORCH_INSIDE_FUNCTIONS = {"graph": {"pyg", "dgl", "ogb"}, "backends": {"host"}}
HOMES_OF_OPTIONAL = {
    "torch_geometric": {"pyg"},
    "dgl": {"dgl"},
    "networkx": {"networkx"},
    "ogb": {"ogb"},
    "pyarrow": {"arrow", "parquet", "row_files", "table", "prediction_file"},
    "pymetis": {"metis"},
    "zmq": {"sockets"},
    "onnx": {"translate"},
    "onnxruntime": {"runner"},
    "boto3": {"access"},
    "botocore": {"access"},
    "ministack": {"local"},
    "ray": {"ray"},
    "tensorboard": {"tensorboard"},
    "mlflow": {"mlflow"},
    "wandb": {"wandb"},
}
LOADED_WITH_ITS_HOME = {"zmq"}  # only these modules need the package; no other module loads it
OPTIONAL = "optional"  # the function that imports the package its first argument names, or names the extra
# Functions that import or run what a text names, which no check can follow.
BY_NAME = {
    "import_module", "__import__", "runpy", "run_module", "run_path", "resolve_name", "load_module", "exec_module",
    "spec_from_file_location", "SourceFileLoader", "getmodule",
}  # fmt: skip
BUILT_IN = {"exec", "eval"}  # the same, but methods may have these names
MAY_IMPORT_BY_NAME = {
    "dorylus.lazy",  # the names of packages
    "dorylus.extras",  # optional packages
    "dorylus.pools.registry",  # the makers of pools
    "dorylus.functions.deploy.reporting",  # the handler of a function that is deployed on this machine
    "dorylus.functions.deploy.local",  # the main function of ministack
}
MODULE_TEXT = re.compile(r"(dorylus(?:\.\w+)+)(?::\w+)?|(dorylus\.)")
PROGRAMS = {("dorylus.pools.processes", "dorylus.functions.worker")}  # modules that other processes run
EVERYWHERE = {"__version__", "__file__", "__path__", "__name__"}


@dataclass(frozen=True)
class Import:
    """An import of a module or, if ``item`` is given, of one of its names. ``on_load``: not inside a function."""

    name: str
    line: int
    on_load: bool
    for_types_only: bool
    item: str = ""


class _Imports(ast.NodeVisitor):
    def __init__(self, module: str, tree: ast.Module, is_package: bool) -> None:
        parts = module.split(".")
        self.package = parts if is_package else parts[:-1]
        self.found: list[Import] = []
        self.by_name: list[tuple[str, int]] = []  # uses of the functions that import by name
        self.hidden: list[tuple[str, int]] = []  # attributes of the package dorylus that it does not export
        self.functions = self.type_blocks = 0
        imports = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        self.tops = {a.asname or "dorylus" for a in imports if a.name.partition(".")[0] == "dorylus"}
        foreign = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and self.is_foreign(node)]
        self.foreign = self.tops | {a.asname or a.name for node in foreign for a in node.names}

    def note(self, name: str, node: ast.AST, item: str = "") -> None:
        line = getattr(node, "lineno", 0)
        self.found.append(Import(name, line, self.functions == 0, self.type_blocks > 0, item))

    def note_by_name(self, name: str, node: ast.AST) -> None:
        if name in BY_NAME:
            self.by_name.append((name, getattr(node, "lineno", 0)))

    def origin(self, node: ast.ImportFrom) -> str:
        base = self.package[: len(self.package) - node.level + 1] if node.level else []
        return ".".join([*base, *filter(None, [node.module])])

    def is_foreign(self, node: ast.ImportFrom) -> bool:
        """Whether the names come from another package of dorylus, or from a single module."""
        parts = self.origin(node).split(".")
        return parts[0] == "dorylus" and parts[1:2] != self.package[1:2]

    def note_attribute(self, owner: ast.expr, name: object, node: ast.AST) -> None:
        if not isinstance(owner, ast.Name) or name in EVERYWHERE:
            return
        is_private = owner.id in self.foreign and str(name).startswith("_")
        if is_private or (owner.id in self.tops and name not in EXPORTS["dorylus"]):
            self.hidden.append((f"{owner.id}.{name}", getattr(node, "lineno", 0)))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.note_by_name(alias.name, node)
            self.note(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        origin = self.origin(node)
        self.note_by_name(origin, node)
        for alias in node.names:
            self.note_by_name(alias.name, node)
            if origin == "dorylus":
                self.note(f"{origin}.{alias.name}", node)
            else:
                self.note(origin, node, alias.name)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        texts = [each.value if isinstance(each, ast.Constant) else None for each in node.args]
        if called == OPTIONAL and texts and isinstance(texts[0], str):
            self.note(texts[0], node)
        if called == "getattr" and len(texts) > 1 and texts[1] is not None:
            self.note_attribute(node.args[0], texts[1], node)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self.note_by_name(node.id, node)
        if node.id in BUILT_IN:
            self.by_name.append((node.id, node.lineno))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.note_by_name(node.attr, node)
        self.note_attribute(node.value, node.attr, node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.value, ast.Name) and node.value.id in self.tops:
            self.hidden.append((node.value.id, node.lineno))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.note_by_name(node.value, node)
            if text := MODULE_TEXT.fullmatch(node.value):
                self.note(text[1] or "dorylus.?", node)  # the start of an f-string may name any module
            elif re.search(r"import|dorylus\.", node.value):
                self.visit_code(node.value, node)

    def visit_code(self, text: str, node: ast.AST) -> None:
        """Visit a text that is Python: a program for another process, or an annotation in quotes."""
        try:
            code = ast.parse(text.strip())
        except SyntaxError:
            return
        for each in ast.walk(code):
            if isinstance(each, ast.Attribute) and MODULE_TEXT.fullmatch(ast.unparse(each)):
                self.note(ast.unparse(each), node)
        self.visit(code)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self.functions += 1
        self.generic_visit(node)
        self.functions -= 1

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef  # noqa: N815

    def visit_If(self, node: ast.If) -> None:
        typing_only = ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        self.type_blocks += typing_only
        for child in node.body:
            self.visit(child)
        self.type_blocks -= typing_only
        for child in node.orelse:
            self.visit(child)


def exports_of(init: Path) -> set[str]:
    """The ``__all__`` of a package."""
    for node in ast.parse(init.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


EXPORTS = {path.parent.name: exports_of(path) for path in [SOURCE / "__init__.py", *SOURCE.glob("*/__init__.py")]}


def imports_of(module: str, source: str, *, is_package: bool = False) -> _Imports:
    """Every import in a module's source."""
    tree = ast.parse(source)
    visitor = _Imports(module, tree, is_package)
    visitor.visit(tree)
    return visitor


def violations(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """A message for every import of ``module`` (such as dorylus.graph.store) that breaks a rule."""
    package, name = module.split(".")[1], module.split(".")[-1]
    imports = imports_of(module, source, is_package=is_package)
    found = [f"{module}:{line} uses {what}, which dorylus does not export" for what, line in imports.hidden]
    if module not in MAY_IMPORT_BY_NAME:
        found += [f"{module}:{line} uses {what}, which hides an import" for what, line in imports.by_name]
    for each in imports.found:
        where = f"{module}:{each.line} imports {'.'.join(filter(None, (each.name, each.item)))}"
        top, *rest = each.name.split(".")
        if top == "dorylus" and (module, each.name) not in PROGRAMS:
            target = rest[0] if rest else "dorylus"
            if target != package and target not in MAY_IMPORT[package]:
                found.append(f"{where}, but {package} may only see {sorted(MAY_IMPORT[package])}")
            elif target != package and len(rest) > 1:
                found.append(f"{where}, which is inside another package: import the name from dorylus.{target}")
            elif target != package and rest and target in EXPORTS and each.item not in EXPORTS[target]:
                found.append(f"{where}, which is not in the __all__ of dorylus.{target}: import an exported name")
        if top == "torch" and package in WITHOUT_TORCH and not each.for_types_only:
            if each.on_load and top not in LOADED_WITH_ITS_HOME:
                found.append(f"{where} on load, but {package} lies below the layers that know torch")
            elif name not in TORCH_INSIDE_FUNCTIONS.get(package, ()):
                found.append(f"{where}, but only the converters of graph/interop and of a back end need torch here")
        if top in HOMES_OF_OPTIONAL and not each.for_types_only:
            if name not in HOMES_OF_OPTIONAL[top]:
                found.append(f"{where}, an optional package that belongs in {sorted(HOMES_OF_OPTIONAL[top])}")
            if each.on_load and top not in LOADED_WITH_ITS_HOME:
                found.append(f"{where} on load, but the package is optional: import it inside a function")
    return found


def modules() -> list[tuple[str, Path]]:
    """(dotted name, file) of every module but the lazy front door."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if parts:
            found.append((".".join(("dorylus", *parts)), path))
    return found


def test_there_are_modules_to_look_at():
    assert {name.split(".")[1] for name, _ in modules()} == set(LAYERS)


@pytest.mark.parametrize(("module", "path"), modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_module_imports_only_what_lies_below_it(module, path):
    assert violations(module, path.read_text(), is_package=path.name == "__init__.py") == []


@pytest.mark.parametrize(
    ("module", "source", "message"),
    [
        ("dorylus.graph.store", "from dorylus.saga import Layer", "graph may only see"),
        ("dorylus.graph.store", "def f():\n    from dorylus.training import Trainer", "graph may only see"),
        ("dorylus.graph.store", "import dorylus.cli.app", "graph may only see"),
        ("dorylus.saga.lower", "from dorylus.graph.features import SparseFeatures", "inside another package"),
        ("dorylus.cli.train", "def f():\n    from dorylus.training.trainer import Trainer", "inside another package"),
        ("dorylus.pipeline.tasks", "from dorylus import kernels", "pipeline may only see ['errors']"),
        ("dorylus.pools.pool", "from dorylus.servers import GraphServer", "pools may only see"),
        ("dorylus.servers.graph.edges", "from ...pools import ThreadsPool", "servers may only see"),
        ("dorylus.report.summary", "from dorylus.training import Result", "report may only see"),
        ("dorylus.saga.layer", "import dorylus", "saga may only see"),
        ("dorylus.partition.layout", "import torch.nn as nn", "below the layers that know torch"),
        ("dorylus.partition.layout", "def f():\n    import torch", "only the converters"),
        ("dorylus.graph.interop.pyg", "import torch_geometric.data", "import it inside a function"),
        ("dorylus.graph.store", "def f():\n    import networkx", "belongs in ['networkx']"),
        ("dorylus.training.result", "def f():\n    return optional('ogb.nodeproppred', '')", "belongs in ['ogb']"),
        ("dorylus.graph.store", "try:\n    import pyarrow\nexcept ImportError:\n    pyarrow = None", "pyarrow"),
        ("dorylus.graph.store", "from dorylus.paging import block_file\nblock_file.BlockFile", "not in the __all__"),
        ("dorylus.graph.store", "from dorylus.paging import *", "not in the __all__"),
        ("dorylus.graph.store", "from dorylus import paging\npaging.block_file.BlockFile", "not in the __all__"),
        ("dorylus.graph.store", "import dorylus.paging as p\np.block_file.BlockFile", "not in the __all__"),
        ("dorylus.graph.store", "from ..paging import block_file", "not in the __all__"),
        ("dorylus.graph.store", "from importlib import import_module\n_load = import_module", "hides an import"),
        ("dorylus.graph.store", "import importlib\nimportlib.import_module(name)", "hides an import"),
        ("dorylus.graph.store", "import importlib\ngetattr(importlib, 'import_module')", "hides an import"),
        ("dorylus.graph.store", "from importlib import import_module as load", "hides an import"),
        ("dorylus.graph.store", "__import__('dorylus.training.trainer')", "hides an import"),
        ("dorylus.graph.store", "import dorylus.graph\ndorylus.training.Trainer", "dorylus.training, which dorylus"),
        ("dorylus.cli.train", "import dorylus\ndorylus.training.trainer.Trainer", "dorylus.training, which dorylus"),
        ("dorylus.cli.train", "import dorylus as d\nd.training.Trainer", "d.training, which dorylus"),
        ("dorylus.cli.train", "import dorylus\nd = dorylus\nd.training.Trainer", "uses dorylus, which dorylus"),
        ("dorylus.cli.train", "import dorylus\ngetattr(dorylus, 'training')", "dorylus.training, which dorylus"),
        ("dorylus.graph.store", "MAKER = 'dorylus.training.trainer:train'", "graph may only see"),
        ("dorylus.cli.train", "MAKER = 'dorylus.training.trainer:train'", "inside another package"),
        ("dorylus.graph.store", "lazy_names('dorylus.training', {'trainer': 'Trainer'})", "graph may only see"),
        ("dorylus.graph.store", "def f(name):\n    return f'dorylus.{name}'", "graph may only see"),
        (
            "dorylus.graph.store",
            "from dorylus import files\nfiles._sync()",
            "files._sync, which dorylus does not export",
        ),
        ("dorylus.graph.store", "from dorylus.paging import Pager as P\nP._open()", "P._open, which dorylus does not"),
        ("dorylus.graph.store", "import dorylus.paging as p\np._open", "p._open, which dorylus does not export"),
        ("dorylus.graph.store", "from dorylus.paging import _open", "not in the __all__"),
        ("dorylus.graph.store", "def f(x: 'dorylus.training.Trainer'): ...", "graph may only see"),
        ("dorylus.graph.store", "def f(x: 'list[dorylus.training.Trainer]'): ...", "graph may only see"),
        ("dorylus.graph.store", "x: list['dorylus.saga.Layer | None']", "graph may only see"),
        ("dorylus.graph.store", "def f() -> '__import__(\"dorylus\").x': ...", "hides an import"),
        ("dorylus.graph.store", "exec(program)", "uses exec, which hides an import"),
        ("dorylus.graph.store", "run = eval", "uses eval, which hides an import"),
        ("dorylus.graph.store", "from runpy import run_module", "hides an import"),
        ("dorylus.graph.store", "import runpy", "uses runpy, which hides an import"),
        ("dorylus.graph.store", "from pkgutil import resolve_name", "uses resolve_name, which hides an import"),
        ("dorylus.graph.store", "import inspect\ninspect.getmodule(f)._x", "uses getmodule, which hides an import"),
        ("dorylus.graph.store", "spec.loader.exec_module(module)", "uses exec_module, which hides an import"),
        ("dorylus.graph.store", "if not TYPE_CHECKING:\n    import torch", "below the layers that know torch"),
        ("dorylus.graph.store", "run('-c', 'import sys; from dorylus.training import Trainer')", "graph may only see"),
        ("dorylus.graph.store", "PROGRAM = 'import torch\\ntorch.ones(1)'", "below the layers that know torch"),
    ],
)
def test_the_check_itself_finds_violations(module, source, message):
    assert any(message in found for found in violations(module, source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dorylus.graph.store", "from dorylus.errors import GraphError\nfrom dorylus.graph import validate"),
        ("dorylus.graph.interop.pyg", "def f():\n    import torch, torch_geometric.data"),
        ("dorylus.graph.graph", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import networkx"),
        (
            "dorylus.runtime.local",
            "import torch\nfrom dorylus.pools import make_pool\nfrom ..servers import GraphServer",
        ),
        ("dorylus.servers.graph.edges", "from dorylus.backends import native\nnative.spmm"),
        ("dorylus.memory.room", "from dorylus import process_memory\nprocess_memory.private_bytes()"),
        ("dorylus.cli.train", "import dorylus\ndorylus.train(dorylus.gcn(hidden=4)), dorylus.__version__"),
        ("dorylus.pools.registry", "MAKER = 'dorylus.pools.makers:make_threads'"),
        ("dorylus.cost.price_book", "from importlib.resources import files\nfiles('dorylus.cost')"),
        ("dorylus.saga.layer", "model.eval()\nfrom dorylus.graph import Graph\nGraph().name, self._names"),
        ("dorylus.graph.store", "'Import of edges: dorylus.training is above, import it from there.'"),
    ],
)
def test_the_check_itself_accepts_valid_imports(module, source):
    assert violations(module, source) == []


@pytest.mark.parametrize("program", ["import dorylus", "import dorylus; dorylus.Graph; dorylus.ConfigError"])
def test_torch_is_not_loaded_before_a_layer_is_accessed(program):
    script = f"{program}; import sys; print(sorted({{'torch', 'torch_geometric', 'pyarrow'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# What a plain install does, in this order, each in the folder that the ones before have left.
WITHOUT_EXTRAS = {
    "ingest of arrays": "ingest edges.npy from-arrays --features x.npy --labels y.npy --train train.npy",
    "ingest of text": "ingest edges.tsv from-text",
    "ingest of names": "ingest edges.tsv from-names --ids map",
    "info": "info from-arrays",
    "partition": "partition from-arrays --servers 2 --out shards",
    "train": "train from-arrays --epochs 2 --run-dir run --checkpoint-every 1 --quiet",
    "train of two servers": "train from-arrays --partition shards --servers 2 --epochs 1 --model gat --quiet",
    "train within a limit": "train from-arrays --memory 2GiB --epochs 1 --quiet",
    "resume": "resume run --quiet",
    "predict": "predict run --out classes.npy --what classes",
    "timeline": "timeline run",
    "trace": "timeline run --format perfetto",
    "report": "report run",
    "train with a live page": "train from-arrays --epochs 1 --live --quiet",
    "plan-memory": "plan-memory from-arrays",
    "convert": "convert from-arrays from-arrays-again",
    "help of functions": "functions --help",
    "doctor": "doctor",
}
# What takes an extra, and the extra that its refusal must name.
WITH_EXTRAS = {
    "train from-arrays --epochs 1 --pool processes": "functions",
    "train from-arrays --epochs 1 --pool http --function-url http://127.0.0.1:9": "functions",
    "train from-arrays --epochs 1 --pool lambda": "lambda",
    "train from-arrays --epochs 1 --pool lambda-local": "local-functions",
    "train from-arrays --epochs 1 --pool ray": "ray",
    "train from-arrays --epochs 1 --cluster ray": "ray",
    "train from-arrays --epochs 1 --servers 2 --partition metis": "metis",
    "train ogbn-arxiv": "ogb",
    "partition from-arrays --servers 2 --method metis": "metis",
    "predict run --out classes.parquet": "tables",
    "ingest edges.parquet refused": "parquet",
    "ingest edges.arrow refused": "parquet",
    "ingest edges.npy refused --features edges.parquet": "parquet",
    "functions deploy --dry-run": "lambda",
    "doctor --cluster ray": "ray",
    "train from-arrays --epochs 1 --log-to tensorboard": "tensorboard",
    "train from-arrays --epochs 1 --log-to mlflow": "mlflow",
    "train from-arrays --epochs 1 --log-to wandb": "wandb",
}


@pytest.fixture(scope="module")
def plain_install(tmp_path_factory):
    """Exit code, stdout and stderr by command, of a Python that sees what a plain install brings and nothing else."""
    folder = tmp_path_factory.mktemp("plain")
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 60, (400, 2))
    np.save(folder / "edges.npy", edges)
    np.savetxt(folder / "edges.tsv", edges, "%d", "\t")
    np.save(folder / "x.npy", rng.standard_normal((60, 4), dtype=np.float32))
    np.save(folder / "y.npy", np.arange(60) % 3)
    np.save(folder / "train.npy", np.arange(30))
    for name in ("edges.parquet", "edges.arrow"):
        (folder / name).write_bytes(b"not looked at")
    commands = [*WITHOUT_EXTRAS.values(), *WITH_EXTRAS]
    done = subprocess.run(
        [sys.executable, TESTS / "plain_install.py"],
        input=json.dumps([command.split() for command in commands]),
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(commands, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("what", WITHOUT_EXTRAS)
def test_without_extras_everything_on_one_machine_works(plain_install, what):
    code, out, err = plain_install[WITHOUT_EXTRAS[what]]
    assert (code, "Traceback" in err) == (0, False), out + err


@pytest.mark.parametrize("command", WITH_EXTRAS)
def test_a_feature_of_an_extra_is_refused_with_its_name_in_one_line(plain_install, command):
    code, out, err = plain_install[command]
    assert code in (1, 2), out + err
    (line,) = [each for each in (out + err).splitlines() if "pip install" in each]
    assert f'pip install "dorylus[{WITH_EXTRAS[command]}]"' in line
    assert "Traceback" not in err
