import importlib.util
import sys

from dorylus.functions.deploy.bytecode import compiled
from dorylus.functions.deploy.platforms import Platform, on_this_machine

SOURCE = b'"""A module."""\nNAMES = {"a", "b"}\n\n\ndef f(x):\n    return x in {"c", "d", "e"} or x == NAMES\n'


def test_a_compiled_source_lies_where_python_looks_for_it_and_runs(tmp_path):
    place, content = compiled("module.py", SOURCE, on_this_machine())
    assert str(tmp_path / place) == importlib.util.cache_from_source(str(tmp_path / "module.py"))
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / place).write_bytes(content)
    (tmp_path / "module.py").write_bytes(b"raise RuntimeError('compiled again')")  # nobody looks at it
    spec = importlib.util.spec_from_file_location("module", tmp_path / "module.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.f("d")


def test_the_same_source_gives_the_same_bytes_whatever_else_holds_its_strings():
    first = compiled("module.py", SOURCE, on_this_machine())
    kept = [sys.intern("NAMES"), sys.intern("module.py")]
    assert compiled("module.py", SOURCE, on_this_machine()) == first
    assert kept


def test_another_python_gets_no_compiled_sources():
    assert compiled("module.py", SOURCE, Platform("x86_64", "3.99", managed=False)) is None


def test_a_source_for_another_python_is_left_as_it_is():
    assert compiled("module.py", b"print 'two'", on_this_machine()) is None
