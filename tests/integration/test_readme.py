"""Programs of README and docs print the documented output or are examples; lines of code and commands are valid."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import dorylus
from dorylus.cli.app import app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
ONE_LINERS = re.findall(r"^\| .*? \| `(.*?)` \| \[", TEXT, re.MULTILINE)
COMMANDS = re.findall(r"^dorylus .*", TEXT, re.MULTILINE)


def test_the_program_prints_what_the_readme_shows(tmp_path):
    programs = re.findall(r"```python\n(.*?)```\s*```\n(.*?)```", TEXT, re.DOTALL)
    assert len(programs) == TEXT.count("```python")
    for program, expected in programs:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=240
        )
        assert done.stdout == expected, done.stderr


def test_the_program_is_the_first_example():
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert (ROOT / "examples" / "first_run.py").read_text().endswith(program)


@pytest.mark.parametrize("page", ["pipeline.md", "partitioning.md"])
def test_the_programs_of_a_page_print_as_many_lines_as_documented(page, tmp_path):
    text = (ROOT / "docs" / page).read_text()
    programs = re.findall(r"```python\n(import dorylus\n.*?)```\s*```\n(.*?)```", text, re.DOTALL)
    assert programs
    for program, expected in programs:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=240
        )
        assert len(done.stdout.splitlines()) == len(expected.splitlines()), done.stderr


@pytest.mark.parametrize(("page", "example"), [("functions.md", "functions.py"), ("layers.md", "own_layer.py")])
def test_a_program_of_a_page_is_an_example(page, example):
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert (ROOT / "examples" / example).read_text().endswith(programs[0])


@pytest.mark.parametrize("line", ONE_LINERS)
def test_a_line_of_code_uses_names_and_settings_that_exist(line):
    tree = ast.parse(line)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if ast.unparse(call.func) == "dorylus.train":
            assert {each.arg for each in call.keywords} <= set(dorylus.RunConfig.names())
    for name in (node for node in ast.walk(tree) if isinstance(node, ast.Attribute)):
        if ast.unparse(name.value) in {"dorylus", "dorylus.Graph"}:
            assert hasattr(eval(ast.unparse(name.value)), name.attr)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_parsed(line):
    _, name, *words = shlex.split(line)
    typer.main.get_command(app).commands[name].make_context(name, words)


def test_there_are_lines_and_commands_to_check():
    assert len(ONE_LINERS) >= 12
    assert len(COMMANDS) >= 3
