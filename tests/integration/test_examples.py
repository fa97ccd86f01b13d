"""Every example runs as it stands, is short, prints something, and leaves nothing behind."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
SLOW = {"functions"}  # takes a minute


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize(
    "example",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.soak] if path.stem in SLOW else []) for path in EXAMPLES],
)
def test_an_example_runs_and_leaves_nothing_behind(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    out, err = capsys.readouterr()
    assert out.strip()
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_an_example_is_a_program_of_its_own(tmp_path):
    done = subprocess.run([sys.executable, EXAMPLES[0]], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_explains_itself(example):
    text = example.read_text()
    assert len(text.splitlines()) < 60
    assert text.startswith('"""')
