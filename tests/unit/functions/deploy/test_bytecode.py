import importlib.util
import shutil
import subprocess
import sys

import pytest

from dorylus.functions.deploy.compiling import compiled
from dorylus.functions.deploy.config import PYTHONS, Platform, on_this_machine
from dorylus.functions.deploy.package import compile_all, interpreter

SOURCE = b'"""A module."""\nNAMES = {"a", "b"}\n\n\ndef f(x):\n    return x in {"c", "d", "e"} or x == NAMES\n'
OTHERS = [version for version in PYTHONS if interpreter(Platform("x86_64", version)) not in (None, sys.executable)]


def test_a_compiled_source_lies_where_python_looks_for_it_and_runs(tmp_path):
    place, content = compiled("module.py", SOURCE)
    assert str(tmp_path / place) == importlib.util.cache_from_source(str(tmp_path / "module.py"))
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / place).write_bytes(content)
    (tmp_path / "module.py").write_bytes(b"raise RuntimeError('compiled again')")  # must not be read
    spec = importlib.util.spec_from_file_location("module", tmp_path / "module.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.f("d")


def test_the_same_source_gives_the_same_bytes_whatever_else_holds_its_strings():
    first = compiled("module.py", SOURCE)
    kept = [sys.intern("NAMES"), sys.intern("module.py")]
    assert compiled("module.py", SOURCE) == first
    assert kept


def test_sources_are_compiled_and_everything_else_is_left_out():
    entries = {"a/module.py": SOURCE, "library.so": b"\x7fELF", "old.py": b"print 'two'"}
    python = interpreter(on_this_machine())
    assert python == sys.executable
    assert compile_all(entries, python) == dict([compiled("a/module.py", SOURCE)])


@pytest.mark.skipif(not OTHERS, reason="no other Python that Lambda runs is on this machine")
def test_another_python_compiles_for_itself(tmp_path):
    python = interpreter(Platform("x86_64", OTHERS[0]))
    for place, content in (compile_all({"module.py": SOURCE}, python) | {"module.py": b"raise RuntimeError"}).items():
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes(content)
    code = "import sys; sys.path.append(sys.argv[1]); import module; print(module.f('d'))"
    done = subprocess.run([python, "-I", "-c", code, tmp_path], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr


def test_without_the_functions_python_on_this_machine_there_is_no_interpreter():
    assert interpreter(Platform("x86_64", "3.99", managed=False)) is None


def test_a_name_that_leads_nowhere_is_no_python(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/false")
    assert interpreter(Platform("x86_64", "3.99", managed=False)) is None
