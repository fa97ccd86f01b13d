"""``make wheel``: which interpreters build wheels, and what is said where one is missing."""

import importlib.util
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "wheels.py"


@pytest.fixture(scope="module")
def wheels():
    spec = importlib.util.spec_from_file_location("wheels", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_python_3_11_has_a_wheel_of_its_own_and_later_ones_share_one(wheels):
    assert wheels.kind_of(sys.executable) == ("cp311" if sys.version_info < (3, 12) else "cp312-abi3")


@pytest.mark.parametrize("command", ["/nowhere/python3.12", "/bin/false", "/bin/true"])
def test_what_is_no_python_builds_nothing(wheels, command):
    assert wheels.kind_of(command) is None


def test_this_python_comes_before_others_of_its_kind(wheels):
    assert sys.executable in wheels.interpreters().values()


def test_a_wheel_that_is_not_built_is_reported_and_the_source_distribution_is_there(
    wheels, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(wheels, "interpreters", dict)
    monkeypatch.setattr(sys, "argv", ["wheels.py", str(tmp_path)])
    assert wheels.main() == 0
    assert [file.suffix for file in tmp_path.iterdir()] == [".gz"]
    missing = [line for line in capsys.readouterr().out.splitlines() if line.startswith("NOT BUILT")]
    assert [line.split(",")[0] for line in missing] == [
        "NOT BUILT: the wheel for Python 3.11",
        "NOT BUILT: the wheel for Python 3.12 and later",
    ]
