"""Every snippet of the tutorials runs, in the order of its page, and prints what the page shows.

A block of ``python`` or ``console`` may be followed by a block of ``text``, which is its output: words are compared,
after commands not numbers, which are times and sizes of this machine; ``...`` stands for anything.
"""

import doctest
import re
import shlex
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
import typer

import dorylus
from dorylus.cli import main
from dorylus.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = {page.stem: page for page in sorted((ROOT / "docs" / "tutorials").glob("*.md"))}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FAILS = {"dorylus plan-memory big --model gcn --hidden 32 --memory 100MiB"}  # and says why, with exit code 1
TOO_SMALL_FOR_TESTS = "--memory 400MiB"  # this process holds more: such a command has a process of its own
CLUSTER = "it needs a Ray cluster: test_ray_nodes.py has one"
LIVE = "it serves a page until its run ends: test_live_server.py reads such a page"
ACCOUNT = "it needs an account: test_lambda_local.py uses a stand-in"
NOT_RUN = {  # and why: their flags, settings and extras are checked
    'pip install "dorylus[ray]"': "it installs packages",
    "dorylus doctor --cluster ray --threads 8 --store /shared/graph": CLUSTER,
    "dorylus train /shared/graph --model gcn --cluster ray --servers 4 --threads 8 "
    "--run-dir /shared/runs/first": CLUSTER,
    'result = dorylus.train(\n    dorylus.load("/shared/graph"), model, cluster="ray", servers=4, threads=8, '
    'run_dir="/shared/runs/first"\n)': CLUSTER,
    "dorylus train communities:num_vertices=4000 --model gcn --epochs 5000 --live": LIVE,
    "dorylus functions deploy --region eu-central-1": ACCOUNT,
    "dorylus train communities --model gcn --pool lambda --data-host HOST --budget-usd 5": ACCOUNT,
    "dorylus functions destroy --region eu-central-1": ACCOUNT,
}
SLOW = {"functions-and-money": 'pool="processes"'}  # blocks that only `make soak` runs: an export takes seconds


def blocks(page):
    """The kind and the text of every block of a page, with the output that follows it, or None."""
    found = [(kind, text.strip()) for kind, text in BLOCK.findall(page.read_text())]
    for (kind, text), (after, output) in pairwise([*found, ("", "")]):
        if kind != "text":
            yield kind, text, output if after == "text" else None


def commands(text):
    return text.replace("\\\n", " ").splitlines()


def run_command(line):
    """Runs one command line, which ends as its page says."""
    program, *arguments = shlex.split(line, comments=True)
    if program != "dorylus":
        subprocess.run([program, *arguments], check=True, timeout=60)
        return
    if TOO_SMALL_FOR_TESTS in line:
        subprocess.run([sys.executable, "-m", "dorylus.cli", *arguments], check=True, timeout=240)
        return
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == (line in FAILS), line


def without_numbers(text):
    """A command's output without what differs from run to run: numbers, units and the blanks that line them up."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d.,]*\d|\d", "#", text)).replace("# bytes", "# MiB").replace("GiB", "MiB")


def assert_as_shown(printed, expected, kind):
    if kind == "console":
        printed, expected = without_numbers(printed), without_numbers(expected)
    as_shown = doctest.OutputChecker().check_output(
        expected.strip() + "\n", printed.strip() + "\n", doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert as_shown, f"the page shows\n{expected}\nbut this is printed\n{printed}"


@pytest.mark.parametrize(
    ("name", "slow"),
    [
        *(pytest.param(name, False, id=name) for name in PAGES),
        *(pytest.param(name, True, id=f"{name}-slow", marks=pytest.mark.soak) for name in SLOW),
    ],
)
def test_the_snippets_of_a_tutorial_run(name, slow, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for kind, text, output in blocks(PAGES[name]):
        if kind == "python":
            if text in NOT_RUN or (not slow and SLOW.get(name, "\0") in text):
                continue
            exec(compile(text, str(PAGES[name]), "exec"), names)
        else:
            for line in commands(text):
                if line not in NOT_RUN:
                    run_command(line)
        printed = capfd.readouterr().out
        if output is not None:
            assert_as_shown(printed, output, kind)


def test_a_block_is_python_commands_or_output():
    assert len(PAGES) >= 4
    kinds = {kind for page in PAGES.values() for kind, _ in BLOCK.findall(page.read_text())}
    assert kinds == {"python", "console", "text"}


@pytest.mark.parametrize("snippet", NOT_RUN, ids=lambda snippet: snippet[:40])
def test_what_is_not_run_is_in_a_tutorial_and_well_formed(snippet, monkeypatch):
    found = [text for page in PAGES.values() for kind, text, _ in blocks(page)]
    assert snippet in found or any(snippet in commands(text) for text in found)
    program, *arguments = shlex.split(snippet)
    if program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert re.fullmatch(r"dorylus\[(.*)\]", arguments[-1])[1] in extras
    elif program == "dorylus":
        command = typer.main.get_command(app)
        while hasattr(command, "commands"):
            command = command.commands[arguments.pop(0)]
        command.make_context("dorylus", arguments)  # refuses what the command does not take
    else:
        monkeypatch.setattr(dorylus, "load", lambda path: path)
        checked = {"train": lambda graph, model, **settings: dorylus.RunConfig.of(**settings)}
        exec(snippet.replace("dorylus.train", "train"), checked | {"dorylus": dorylus, "model": None})
